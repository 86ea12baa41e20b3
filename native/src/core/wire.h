// The protobuf wire format (https://protobuf.dev/programming-guides/encoding): fields in, fields out.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace affidavit {

// Bytes that are no message, or a form of it that is not read here.
struct WireError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct WireField {
  std::uint32_t number = 0;
  bool is_bytes = false;
  std::uint64_t value = 0;  // of a varint
  std::string_view bytes;   // of a length-delimited field

  std::uint64_t varint() const {
    if (is_bytes) throw WireError("a field has another type than its number says");
    return value;
  }
  std::string_view text() const {
    if (!is_bytes) throw WireError("a field has another type than its number says");
    return bytes;
  }
};

// Reads a message field by field; only varints and length-delimited fields, which is all that the log's messages have.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  bool next(WireField& field) {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field.number = static_cast<std::uint32_t>(tag >> 3);
    if (field.number == 0 || tag >> 32) throw WireError("a field has no number");
    switch (tag & 7) {
      case 0:
        field.is_bytes = false;
        field.value = varint();
        return true;
      case 2: {
        field.is_bytes = true;
        const std::uint64_t size = varint();
        if (size > rest_.size()) throw WireError("a field is cut short");
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      default:
        throw WireError("a field has a type that is not used here");
    }
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) throw WireError("a number is cut short");
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    throw WireError("a number is too long");
  }

  std::string_view rest_;
};

inline std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Fields with numbers below 16, as all of the log's answers have.
inline void put_number(std::string& out, int number, std::uint64_t value) {
  if (!value) return;
  out.push_back(static_cast<char>(number << 3));
  put_varint(out, value);
}

inline void put_head(std::string& out, int number, std::size_t size) {
  out.push_back(static_cast<char>(number << 3 | 2));
  put_varint(out, size);
}

inline void put_bytes(std::string& out, int number, std::string_view bytes) {
  if (bytes.empty()) return;
  put_head(out, number, bytes.size());
  out.append(bytes);
}

inline std::size_t number_size(std::uint64_t value) { return value ? 1 + varint_size(value) : 0; }

inline std::size_t bytes_size(std::size_t size) { return size ? 1 + varint_size(size) + size : 0; }

}  // namespace affidavit
