// SHA-256 (FIPS 180-4), by the processor's own instructions where it has them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace affidavit {

using Hash = std::array<std::uint8_t, 32>;

inline std::string_view view(const Hash& hash) { return {reinterpret_cast<const char*>(hash.data()), hash.size()}; }

// The hash of `parts`, one after the other.
Hash sha256(std::initializer_list<std::string_view> parts);

// The same by plain arithmetic, for processors without the instructions; tests compare the two.
Hash sha256_portable(std::initializer_list<std::string_view> parts);

}  // namespace affidavit
