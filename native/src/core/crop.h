// Cutting a text line out of a page: the perspective that takes a quad to an upright rectangle.
#pragma once

#include <cstdint>

#include "core/image.h"

namespace affidavit {

// Both throw std::invalid_argument for a quad that is not finite, not convex, or not clockwise (y down).
// Outside the page its edge pixels repeat.

// What cv2.getPerspectiveTransform(quad -> [(0,0), (w,0), (w,h), (0,h)]) and cv2.warpPerspective (INTER_LINEAR,
// BORDER_REPLICATE) give, into `out` (height x width x image.channels, without gaps).
void crop_quad(const Image& image, const Quad& quad, int height, int width, std::uint8_t* out);

// From page pixels to the normalised tensor in one pass: the quad fills the left `content_width` columns of `out`, at
// the places where a crop in the quad's own size, resized linearly at half-pixel centres, would be sampled; the rest of
// each row is zero. Where the quad has more than 2 page pixels to an output pixel along an axis, each output pixel is
// the mean of ceil(ratio) samples along it (16 at most), so that thin strokes stay.
void crop_normalize(const Image& image, const Quad& quad, const Normalization& normalization, int content_width,
                    const Planes& out);

}  // namespace affidavit
