#include "core/sha256.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace affidavit {
namespace {

using State = std::array<std::uint32_t, 8>;
using Compress = void (*)(State&, const std::uint8_t*, std::size_t);

constexpr std::size_t kBlock = 64;
constexpr State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress_portable(State& state, const std::uint8_t* data, std::size_t blocks) {
  for (; blocks; --blocks, data += kBlock) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      w[i] = std::uint32_t{data[4 * i]} << 24 | std::uint32_t{data[4 * i + 1]} << 16 |
             std::uint32_t{data[4 * i + 2]} << 8 | data[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const State add = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += add[i];
  }
}

#if defined(__x86_64__)

// The instructions keep the state as (a b e f) and (c d g h), highest word first (Intel SDM, SHA256RNDS2).
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(State& state, const std::uint8_t* data,
                                                                 std::size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data()));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data() + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks; --blocks, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i)), swap);
    }
    for (int i = 0; i < 16; ++i) {
      const __m128i now = w[i & 3];
      const __m128i sum = _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i < 12) {  // the four words after the next twelve
        const __m128i last = w[(i + 3) & 3], seventh = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
        const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) & 3]), seventh);
        w[i & 3] = _mm_sha256msg2_epu32(partial, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

const Compress kFastest = has_sha_ni() ? compress_sha_ni : compress_portable;
#else
const Compress kFastest = compress_portable;
#endif

Hash digest(Compress compress, std::initializer_list<std::string_view> parts) {
  State state = kInitial;
  std::uint8_t block[2 * kBlock] = {};
  std::size_t held = 0;
  std::uint64_t total = 0;
  for (std::string_view part : parts) {
    total += part.size();
    const auto* data = reinterpret_cast<const std::uint8_t*>(part.data());
    std::size_t left = part.size();
    if (held) {
      const std::size_t take = std::min(left, kBlock - held);
      if (take) std::memcpy(block + held, data, take);
      held += take, data += take, left -= take;
      if (held < kBlock) continue;
      compress(state, block, 1);
      held = 0;
    }
    compress(state, data, left / kBlock);
    held = left % kBlock;
    if (held) std::memcpy(block, data + left - held, held);
  }
  block[held++] = 0x80;
  const std::size_t end = held + 8 <= kBlock ? kBlock : 2 * kBlock;
  std::memset(block + held, 0, end - held);
  for (int i = 0; i < 8; ++i) block[end - 1 - i] = static_cast<std::uint8_t>(total * 8 >> 8 * i);
  compress(state, block, end / kBlock);
  Hash hash;
  for (int i = 0; i < 32; ++i) hash[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return hash;
}

}  // namespace

Hash sha256(std::initializer_list<std::string_view> parts) { return digest(kFastest, parts); }

Hash sha256_portable(std::initializer_list<std::string_view> parts) { return digest(compress_portable, parts); }

}  // namespace affidavit
