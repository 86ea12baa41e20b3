#include "core/churn.h"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/scheduler.h"

namespace affidavit {

double churn(int submitters, int engines, int requests) {
  if (submitters < 1 || submitters > 64 || engines < 1 || engines > 64 || requests < 1 || requests > 100'000'000) {
    throw std::invalid_argument("submitters and engines must be 1 to 64, requests 1 to 100000000");
  }
  DynamicBatchScheduler scheduler(1024, {8, 1000, 0, 1.0, 1.25}, false);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> taking, feeding;
  for (int e = 0; e < engines; ++e) {
    taking.emplace_back([&] {
      while (scheduler.next_batch(1'000'000) || !scheduler.closed()) {
      }
    });
  }
  for (int s = 0; s < submitters; ++s) {
    feeding.emplace_back([&, s] {
      for (int id = s; id < requests; id += submitters) {
        while (scheduler.submit(id, 10 + id % 10, id % 4, false) == Admission::kFull) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : feeding) thread.join();
  scheduler.close();
  for (auto& thread : taking) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace affidavit
