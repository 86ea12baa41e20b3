// affidavit._native: the C++ that Python services share. Each part binds itself in its own file.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Batch scheduler, image work and CTC decoding; every call releases the GIL while it works.";
  m.attr("__version__") = "0.1.0";
}
