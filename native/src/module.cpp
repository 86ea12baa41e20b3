// affidavit._native: the C++ that Python services share. Each part binds itself in its own file.
#include <nanobind/nanobind.h>

#include "bind.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() =
      "Batch scheduler, image work, CTC decoding and the evidence log's records; what waits or computes does so "
      "without the GIL.";
  m.attr("__version__") = "0.1.0";
  affidavit::bind_imaging(m);
  affidavit::bind_ctc(m);
  affidavit::bind_log(m);
  affidavit::bind_scheduler(m);
}
