// RFC 8785 JSON: a judge of the usual case, and a text as it stands in it.
#pragma once

#include <string>
#include <string_view>

namespace affidavit {

bool is_printable_ascii(std::string_view text);

// Whether `text` is a canonical JSON object that needs no second look: names and strings of printable ASCII without
// quotes or backslashes, integers below 10^15, at most 16 levels deep. Other canonical JSON exists.
bool is_plain_json(std::string_view text);

// Appends `text` (UTF-8) as a JSON string: RFC 8785 3.2.2.2.
void put_json_string(std::string& out, std::string_view text);

}  // namespace affidavit
