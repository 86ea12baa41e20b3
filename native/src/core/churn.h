// How fast the scheduler itself is: requests through it from C++ threads, with engines that do nothing.
#pragma once

namespace affidavit {

// Seconds in which `submitters` threads put `requests` requests in all through a scheduler (capacity 1024, max_batch 8,
// four groups, costs 10 to 19) and `engines` threads take them. Throws std::invalid_argument for counts out of range.
double churn(int submitters, int engines, int requests);

}  // namespace affidavit
