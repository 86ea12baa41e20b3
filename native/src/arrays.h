// numpy arrays as the core's views, without copies; what does not fit is a ValueError that says what was expected.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

namespace affidavit {

using ReadArray = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;
using WriteArray = nanobind::ndarray<nanobind::device::cpu>;

template <typename Array>
std::string shape_of(const Array& array) {
  std::string text = "(";
  for (std::size_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
  return text + ")";
}

// Refuses another element type, another number of dimensions, or inner dimensions with gaps: the last `dense` ones must
// lie side by side as in a C-ordered array; the strides of the others are free (a slice of rows, of pages).
template <typename T, typename Array>
void expect(const Array& array, const char* name, std::size_t ndim, std::size_t dense, const char* expected) {
  bool fits = array.ndim() == ndim && array.dtype() == nanobind::dtype<T>();
  std::int64_t stride = 1;
  for (std::size_t i = 0; fits && i < dense; ++i) {
    const std::size_t axis = ndim - 1 - i;
    fits = array.size() == 0 || array.shape(axis) == 1 || array.stride(axis) == stride;
    stride *= static_cast<std::int64_t>(array.shape(axis));
  }
  if (!fits) {
    const std::string message = std::string(name) + " must be " + expected + ", contiguous in its last " +
                                std::to_string(dense) + " dimensions; got shape " + shape_of(array) + " of " +
                                std::to_string(array.dtype().bits) + "-bit elements";
    throw nanobind::value_error(message.c_str());
  }
}

}  // namespace affidavit
