#include "core/plain_json.h"

#include <algorithm>

namespace affidavit {
namespace {

constexpr int kDepth = 16;
constexpr std::size_t kDigits = 15;

class PlainJson {
 public:
  explicit PlainJson(std::string_view text) : rest_(text) {}

  bool is_object() { return object(kDepth) && rest_.empty(); }

 private:
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }

  bool string(std::string_view& content) {
    if (!take("\"")) return false;
    const std::size_t end = rest_.find('"');
    if (end == std::string_view::npos) return false;
    content = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return is_printable_ascii(content) && content.find('\\') == std::string_view::npos;
  }

  bool integer() {
    const bool negative = take("-");
    const auto end = std::find_if(rest_.begin(), rest_.end(), [](char c) { return c < '0' || c > '9'; });
    const auto digits = static_cast<std::size_t>(end - rest_.begin());
    if (digits == 0 || digits > kDigits || (rest_.front() == '0' && (digits > 1 || negative))) return false;
    rest_.remove_prefix(digits);
    return true;  // a fraction or an exponent that follows is no end of a value
  }

  bool value(int depth) {
    std::string_view content;
    switch (rest_.empty() ? '\0' : rest_.front()) {
      case '{':
        return object(depth - 1);
      case '[':
        return array(depth - 1);
      case '"':
        return string(content);
      case 't':
        return take("true");
      case 'f':
        return take("false");
      case 'n':
        return take("null");
      default:
        return integer();
    }
  }

  bool object(int depth) {
    if (depth == 0 || !take("{")) return false;
    if (take("}")) return true;
    std::string_view before, name;
    for (bool first = true;; first = false, before = name) {
      if (!string(name) || (!first && name <= before) || !take(":") || !value(depth)) return false;
      if (take("}")) return true;
      if (!take(",")) return false;
    }
  }

  bool array(int depth) {
    if (depth == 0 || !take("[")) return false;
    if (take("]")) return true;
    for (;;) {
      if (!value(depth)) return false;
      if (take("]")) return true;
      if (!take(",")) return false;
    }
  }

  std::string_view rest_;
};

}  // namespace

bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

bool is_plain_json(std::string_view text) { return PlainJson(text).is_object(); }

void put_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\b':
        out.append("\\b");
        break;
      case '\f':
        out.append("\\f");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out.append("\\u00").push_back(kHex[c >> 4]);
          out.push_back(kHex[c & 15]);
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

}  // namespace affidavit
