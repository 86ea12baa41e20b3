// CTC decoding, greedy: the most probable class of each time step, repeats merged, blanks dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace affidavit {

// What one line of text decodes to; the three lists have one entry for each emitted character.
struct CtcPath {
  std::vector<std::int32_t> indices;    // class, never the blank
  std::vector<std::int32_t> positions;  // time step at which the character is most probable, first of equals
  std::vector<float> confidence;        // its probability there
};

// A space that is doubted: between two characters without one, it is read where its probability reaches `least`, though
// "no character" is more probable.
struct DoubtedSpace {
  int index = -1;  // its class, -1 for none
  float least = 1.0F;
};

// Decodes `steps` rows of `classes` probabilities, rows `step_stride` floats apart.
// Throws std::invalid_argument when a row has no value above minus infinity (an engine that answers NaN).
CtcPath ctc_greedy(const float* probabilities, int steps, int classes, std::ptrdiff_t step_stride, int blank,
                   DoubtedSpace space = {});

// Index of the greatest of `count` floats, the first of equals; NaN never wins. -1 when nothing wins.
int argmax(const float* values, int count);

}  // namespace affidavit
