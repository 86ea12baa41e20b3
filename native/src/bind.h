// What each bind_*.cpp adds to affidavit._native.
#pragma once

#include <nanobind/nanobind.h>

namespace affidavit {

void bind_imaging(nanobind::module_& m);
void bind_ctc(nanobind::module_& m);
void bind_log(nanobind::module_& m);
void bind_scheduler(nanobind::module_& m);

}  // namespace affidavit
