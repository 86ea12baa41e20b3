#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "bind.h"
#include "core/churn.h"
#include "core/scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace affidavit {
namespace {

template <typename T, typename Value>
std::vector<T> each(const Batch& batch, Value value) {
  std::vector<T> values;
  values.reserve(batch.members.size());
  for (const Member& member : batch.members) values.push_back(member.*value);
  return values;
}

std::optional<Batch> next_batch(DynamicBatchScheduler& scheduler, double timeout_s) {
  if (!(timeout_s >= 0 && timeout_s <= 3600)) throw nb::value_error("timeout_s must be 0 to 3600");
  nb::gil_scoped_release release;
  return scheduler.next_batch(std::llround(timeout_s * 1e6));
}

void configure(DynamicBatchScheduler& scheduler, std::optional<int> max_batch, std::optional<std::int64_t> max_wait_us,
               std::optional<double> sigma, std::optional<std::int64_t> hold_us) {
  Policy policy = scheduler.policy();
  policy.max_batch = max_batch.value_or(policy.max_batch);
  policy.max_wait_us = max_wait_us.value_or(policy.max_wait_us);
  policy.sigma = sigma.value_or(policy.sigma);
  if (hold_us) policy.hold_us = hold_us;
  scheduler.configure(policy);
}

template <Trigger kTrigger>
std::uint64_t triggered(const Stats& stats) {
  return stats.triggers[static_cast<std::size_t>(kTrigger)];
}

}  // namespace

void bind_scheduler(nb::module_& m) {
  nb::enum_<Admission>(m, "Admission", "What became of a submitted request.")
      .value("ACCEPTED", Admission::kAccepted)
      .value("FULL", Admission::kFull, "The queue (for a canary: its lane) has no room.")
      .value("CLOSED", Admission::kClosed);

  nb::enum_<Trigger>(m, "Trigger", "Why a batch was given out.")
      .value("CANARY", Trigger::kCanary, "A canary waited.")
      .value("OVERDUE", Trigger::kOverdue, "The oldest request had waited max_wait_us.")
      .value("HELD", Trigger::kHeld, "The oldest request had waited hold_us.")
      .value("FULL", Trigger::kFull, "max_batch compatible requests waited.")
      .value("CLOSED", Trigger::kClosed, "The scheduler is closing; nothing is held any longer.");

  nb::enum_<Joined>(m, "Joined", "Why a request is in its batch.")
      .value("CANARY", Joined::kCanary)
      .value("LEAD", Joined::kLead, "It is the first, and not overdue.")
      .value("OVERDUE", Joined::kOverdue, "It had waited max_wait_us, and its cost did not matter.")
      .value("COMPATIBLE", Joined::kCompatible, "Its cost was compatible with those before it.");

  nb::class_<Batch>(m, "Batch",
                    "Requests of one group for one engine call: the canary first, then in order of arrival.")
      .def_ro("trigger", &Batch::trigger)
      .def_ro("group", &Batch::group)
      .def_prop_ro("ids", [](const Batch& batch) { return each<std::uint64_t>(batch, &Member::id); })
      .def_prop_ro(
          "joined", [](const Batch& batch) { return each<Joined>(batch, &Member::joined); },
          "Why each request is in the batch.")
      .def_prop_ro(
          "queue_us", [](const Batch& batch) { return each<std::int64_t>(batch, &Member::queue_us); },
          "Microseconds that each request had waited.")
      .def("__len__", [](const Batch& batch) { return batch.members.size(); });

  nb::class_<Stats>(m, "SchedulerStats", "Counters since the scheduler was made.")
      .def_ro("submitted", &Stats::submitted, "Requests accepted.")
      .def_ro("rejected", &Stats::rejected, "Requests refused because the queue was full.")
      .def_ro("cancelled", &Stats::cancelled, "Requests cancelled while they waited.")
      .def_ro("taken", &Stats::taken, "Requests given out in batches.")
      .def_ro("batches", &Stats::batches, "Batches given out.")
      .def_ro("sizes", &Stats::sizes, "sizes[n]: batches of n requests.")
      .def_ro("depth", &Stats::depth, "Requests waiting now, canaries included.")
      .def_ro("max_depth", &Stats::max_depth, "The most that ever waited at once.")
      .def_prop_ro("canary_batches", &triggered<Trigger::kCanary>)
      .def_prop_ro("overdue_batches", &triggered<Trigger::kOverdue>)
      .def_prop_ro("held_batches", &triggered<Trigger::kHeld>)
      .def_prop_ro("full_batches", &triggered<Trigger::kFull>)
      .def_prop_ro("closed_batches", &triggered<Trigger::kClosed>);

  // submit, cancel and the rest keep the GIL: they hold the lock for less time than giving up the GIL and getting it
  // back takes, and a thread that holds the lock never waits for the GIL. next_batch waits, and waits without it.
  nb::class_<DynamicBatchScheduler>(m, "DynamicBatchScheduler",
                                    R"(Which waiting requests an engine takes next, and when.

A batch takes overdue requests first (waited max_wait_us; oldest first), then waiting ones whose cost is compatible:
within mean +- sigma standard deviations of the batch's costs, and within a factor of `ratio` while those are all equal.
An incompatible one is passed over; it becomes overdue in time, and the oldest overdue leads, so none starves. Overdue
requests join at any cost if all of their group fit into the batch; if more are overdue the engine is behind, and they too
must be compatible, or padding would keep it behind. A batch has one group, that of its first member. A canary goes before
everything and does not wait; it has a lane of 16 beside the queue.

A batch is given out when a canary waits, when the oldest request has waited hold_us (or max_wait_us), when max_batch
compatible requests wait, or when the scheduler is closing. hold_us is thus what an idle engine pays, in waiting, for
fuller batches: 0 keeps engines working whenever anything waits, None holds for max_wait_us.

Args:
    capacity: requests that may wait, 1 to 1,000,000; canaries not counted.
    max_batch: 1 to 4096.
    max_wait_us, hold_us: microseconds, 0 to one hour.
    sigma: 0 or more.
    ratio: 1 or more.
    virtual_time: the clock stands at 0 and moves by `advance` alone; for tests and simulations.

Raises:
    ValueError: a value is out of range.)")
      .def(
          "__init__",
          [](DynamicBatchScheduler* self, std::size_t capacity, int max_batch, std::int64_t max_wait_us, double sigma,
             double ratio, std::optional<std::int64_t> hold_us, bool virtual_time) {
            const Policy policy{max_batch, max_wait_us, hold_us, sigma, ratio};
            new (self) DynamicBatchScheduler(capacity, policy, virtual_time);
          },
          "capacity"_a, "max_batch"_a, "max_wait_us"_a, "sigma"_a, "ratio"_a = 1.25, nb::kw_only(),
          "hold_us"_a = nb::none(), "virtual_time"_a = false)
      .def("submit", &DynamicBatchScheduler::submit, "id"_a, "cost"_a, "group"_a = 0, nb::kw_only(), "canary"_a = false,
           R"(Puts a request into the queue, or says at once that it is full or closed.

Raises:
    ValueError: the id is already waiting, or the cost is not finite and positive.)")
      .def("cancel", &DynamicBatchScheduler::cancel, "id"_a,
           "Takes a waiting request out. False when it is not waiting: taken, cancelled or never submitted.")
      .def("next_batch", &next_batch, "timeout_s"_a,
           R"(Waits for a batch, without the GIL; any number of threads may.

None after timeout_s (0 to 3600), or when the scheduler is closed and its queue is empty. With virtual time a thread
waits until another one calls `advance`; a timeout of 0 never waits.)")
      .def("close", &DynamicBatchScheduler::close,
           "Refuses new requests, wakes every waiting thread, and gives out what is left without holding it.")
      .def("configure", &configure, nb::kw_only(), "max_batch"_a = nb::none(), "max_wait_us"_a = nb::none(),
           "sigma"_a = nb::none(), "hold_us"_a = nb::none(),
           "Changes settings while running; what is not given stays. Raises ValueError when one is out of range.")
      .def("advance", &DynamicBatchScheduler::advance, "us"_a, "Moves virtual time forward and wakes waiting threads.")
      .def("stats", &DynamicBatchScheduler::stats)
      .def_prop_ro("closed", &DynamicBatchScheduler::closed)
      .def_prop_ro("now_us", &DynamicBatchScheduler::now_us, "The scheduler's clock: monotonic microseconds.")
      .def_prop_ro("due_us", &DynamicBatchScheduler::due_us,
                   "When a batch becomes due if nothing else arrives; None when nothing waits.");

  m.def("scheduler_churn", &churn, "submitters"_a, "engines"_a, "requests"_a, nb::call_guard<nb::gil_scoped_release>(),
        R"(Seconds in which C++ threads put `requests` requests through a scheduler whose engines do nothing.

Raises:
    ValueError: submitters or engines outside 1 to 64, requests outside 1 to 100,000,000.)");
}

}  // namespace affidavit
