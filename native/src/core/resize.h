// Resizing and normalising an image straight into a batch tensor.
#pragma once

#include "core/image.h"

namespace affidavit {

enum class Filter {
  kLinear,  // cv2.INTER_LINEAR: two taps an axis at half-pixel centres; drops detail when it shrinks by more than 2
  kArea,    // cv2.INTER_AREA: the mean of the covered pixels along an axis that shrinks, linear along one that grows
};

// Resizes to `content_width` x out.height, normalises into the left of `out`, and fills the rest of each row with
// zeros. Gray goes into all three planes. 1 <= content_width <= out.width; the image is not empty.
void resize_normalize(const Image& image, Filter filter, const Normalization& normalization, int content_width,
                      const Planes& out);

}  // namespace affidavit
