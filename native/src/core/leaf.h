// Record v1: the bytes of a leaf (libs/evidence/record.py says what stands in it, and is what tests compare with).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/append_item.h"

namespace affidavit {

// The leaf of an item that was checked. `time`: RFC 3339 UTC with microseconds.
std::string leaf_bytes(const AppendItem& item, std::uint64_t index, std::string_view time);

}  // namespace affidavit
