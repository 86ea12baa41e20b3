#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "core/ctc.h"

namespace nb = nanobind;

namespace affidavit {
namespace {

template <typename T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> view(const std::vector<T>& values) {
  return {values.data(), {values.size()}};
}

std::vector<CtcPath> decode(const ReadArray& probs, int blank, int space, float least_space) {
  const bool batched = probs.ndim() == 3;
  expect<float>(probs, "probs", batched ? 3 : 2, 1, "float32 (T, C) or (N, T, C)");
  const std::size_t lines = batched ? probs.shape(0) : 1;
  const std::size_t first = batched ? 1 : 0;
  const auto steps = static_cast<int>(probs.shape(first));
  const auto classes = static_cast<int>(probs.shape(first + 1));
  if (blank < 0 || blank >= classes) throw nb::value_error("blank must be a class, 0 <= blank < C");
  if (space < -1 || space >= classes) throw nb::value_error("space must be a class, or -1 for none");
  if (!(least_space > 0.0F && least_space <= 1.0F)) throw nb::value_error("least_space must be over 0, at most 1");
  const auto* data = static_cast<const float*>(probs.data());
  const std::int64_t line_stride = batched ? probs.stride(0) : 0;
  const std::int64_t step_stride = probs.stride(first);
  nb::gil_scoped_release release;
  std::vector<CtcPath> paths;
  for (std::size_t line = 0; line < lines; ++line) {
    paths.push_back(ctc_greedy(data + static_cast<std::int64_t>(line) * line_stride, steps, classes, step_stride, blank,
                               DoubtedSpace{space, least_space}));
  }
  return paths;
}

}  // namespace

void bind_ctc(nb::module_& m) {
  nb::class_<CtcPath>(m, "CtcPath", "What one line decodes to: three read-only arrays, an entry for each character.")
      .def_prop_ro(
          "indices", [](const CtcPath& path) { return view(path.indices); }, nb::rv_policy::reference_internal,
          nb::sig("def indices(self) -> numpy.typing.NDArray[numpy.int32]"), "Class of each character; no blanks.")
      .def_prop_ro(
          "positions", [](const CtcPath& path) { return view(path.positions); }, nb::rv_policy::reference_internal,
          nb::sig("def positions(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Time step at which each character is most probable, the first of equals.")
      .def_prop_ro(
          "confidence", [](const CtcPath& path) { return view(path.confidence); }, nb::rv_policy::reference_internal,
          nb::sig("def confidence(self) -> numpy.typing.NDArray[numpy.float32]"), "The probability there, 0 to 1.")
      .def("__len__", [](const CtcPath& path) { return path.indices.size(); });

  m.def("ctc_greedy", &decode, nb::arg("probs").noconvert(), nb::arg("blank") = 0, nb::arg("space") = -1,
        nb::arg("least_space") = 1.0F,
        nb::sig("def ctc_greedy(probs: numpy.typing.NDArray[numpy.float32], blank: int = 0, space: int = -1, "
                "least_space: float = 1.0) -> list[CtcPath]"),
        R"(Greedy CTC decode: the most probable class of each step, repeats merged, blanks dropped.

Args:
    probs: float32 (T, C), one line, or (N, T, C); probabilities, classes side by side. Nothing is copied.
    blank: the class that stands for "no character".
    space: the class of the space, -1 for none. Between two characters that have none, it is read at its most probable
        step if it reaches `least_space` there, though `blank` is more probable.
    least_space: a probability, over 0, at most 1.

Returns:
    One path a line, N in all (one for a single line).

Raises:
    ValueError: another shape or element type, a class or a probability out of range, or a step whose values are all NaN.)");
}

}  // namespace affidavit
