#include "core/ctc.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/clones.h"

namespace affidavit {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Sixteen floats: one AVX-512 register, two AVX ones or four SSE ones. Any address will do.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int kLanes = 16;
constexpr int kBlock = 512;  // floats whose maximum is taken before asking whether it is the row's

}  // namespace

// A row is read once: each block's maximum is found in four independent chains (a single one waits for its own
// latency), and only the block that holds the row's maximum is searched for the index.
AFFIDAVIT_CLONES int argmax(const float* values, int count) {
  float best = kNothing;
  int best_block = -1;
  int begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    Lanes chain[4];
    for (auto& lanes : chain) lanes = Lanes{} + kNothing;
    for (int i = begin; i < begin + kBlock; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const Lanes v = *reinterpret_cast<const Lanes*>(values + i + k * kLanes);
        chain[k] = v > chain[k] ? v : chain[k];
      }
    }
    Lanes top = chain[0];
    for (int k = 1; k < 4; ++k) top = chain[k] > top ? chain[k] : top;
    float block_best = kNothing;
    for (int lane = 0; lane < kLanes; ++lane) block_best = top[lane] > block_best ? top[lane] : block_best;
    if (block_best > best) {
      best = block_best;
      best_block = begin;
    }
  }
  int best_tail = -1;
  for (; begin < count; ++begin) {
    if (values[begin] > best) {
      best = values[begin];
      best_tail = begin;
    }
  }
  if (best_tail >= 0 || best_block < 0) return best_tail;
  int at = best_block;
  while (values[at] != best) ++at;
  return at;
}

CtcPath ctc_greedy(const float* probabilities, int steps, int classes, std::ptrdiff_t step_stride, int blank,
                   DoubtedSpace space) {
  CtcPath path;
  int previous = blank;
  int space_step = -1;  // since the last character, where a space is most probable among the steps without one
  float space_probability = 0.0F;
  for (int step = 0; step < steps; ++step) {
    const float* row = probabilities + step * step_stride;
    const int index = argmax(row, classes);
    if (index < 0) throw std::invalid_argument("time step " + std::to_string(step) + " has no probability, only NaN");
    if (index != blank) {
      if (index != previous) {
        const bool beside_space = path.indices.empty() || index == space.index || path.indices.back() == space.index;
        if (space_step >= 0 && space_probability >= space.least && !beside_space) {
          path.indices.push_back(space.index);
          path.positions.push_back(space_step);
          path.confidence.push_back(space_probability);
        }
        space_step = -1;
        space_probability = 0.0F;
        path.indices.push_back(index);
        path.positions.push_back(step);
        path.confidence.push_back(row[index]);
      } else if (row[index] > path.confidence.back()) {
        path.positions.back() = step;
        path.confidence.back() = row[index];
      }
    } else if (space.index >= 0 && row[space.index] > space_probability) {
      space_step = step;
      space_probability = row[space.index];
    }
    previous = index;
  }
  return path;
}

}  // namespace affidavit
