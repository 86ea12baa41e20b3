#include "core/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

namespace affidavit {
namespace {

// Leads whose batch might be full that one look tries; a look is made with the lock held.
constexpr int kLeadsTried = 32;

constexpr std::int64_t kLongestWait = std::int64_t{3600} * 1'000'000;

// The costs of a batch being gathered: mean and squared deviation as Welford (1962) keeps them.
struct Costs {
  double count = 0, mean = 0, squares = 0, least = 0, most = 0;

  void add(double cost) {
    least = count == 0 ? cost : std::min(least, cost);
    most = count == 0 ? cost : std::max(most, cost);
    count += 1;
    const double before = cost - mean;
    mean += before / count;
    squares += before * (cost - mean);
  }

  bool admit(double cost, const Policy& policy) const {
    if (least == most) return cost * policy.ratio >= least && cost <= least * policy.ratio;
    const double off = cost - mean;
    return off * off * count <= policy.sigma * policy.sigma * squares;
  }
};

void check(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

Policy checked(const Policy& policy) {
  check(policy.max_batch >= 1 && policy.max_batch <= DynamicBatchScheduler::kMostInBatch,
        "max_batch must be 1 to 4096");
  check(policy.max_wait_us >= 0 && policy.max_wait_us <= kLongestWait, "max_wait_us must be 0 to one hour");
  check(policy.hold() >= 0 && policy.hold() <= kLongestWait, "hold_us must be 0 to one hour");
  check(std::isfinite(policy.sigma) && policy.sigma >= 0, "sigma must be finite and not negative");
  check(std::isfinite(policy.ratio) && policy.ratio >= 1, "ratio must be finite and at least 1");
  return policy;
}

}  // namespace

DynamicBatchScheduler::DynamicBatchScheduler(std::size_t capacity, const Policy& policy, bool virtual_time)
    : capacity_(capacity), virtual_time_(virtual_time), policy_(checked(policy)) {
  check(capacity >= 1 && capacity <= 1'000'000, "capacity must be 1 to 1000000");
}

// The whole policy.
//
// A batch has one group, that of its first member: requests of different groups cannot share an engine call.
// When:  the canary waits, or the oldest request is due (overdue, held long enough, or the scheduler is closing), or
//        some request leads a full batch. Until then an idle engine waits: hold_us is what it pays for fuller batches,
//        and 0 keeps it working whenever anything waits.
// What:  the canary, or else the lead; then, from there on in the order of arrival, whatever of the same group is
//        overdue or compatible with the costs taken so far. Requests that are neither stay where they are.
//        Overdue ones join at any cost if all of the group's fit into this batch: that ends their lateness. If there
//        are more, the engine is behind, and mixed costs would keep it there: padding halves what it does a second
//        (overload_* of tools/bench/scheduler.py). Then they too must be compatible, oldest first.
// None can starve: it becomes overdue, then the oldest overdue, and that one leads the next batch without a canary.
DynamicBatchScheduler::Choice DynamicBatchScheduler::choose(std::int64_t now) {
  const auto waited = [&](const Request& request) { return now - request.arrival_us; };
  const auto overdue = [&](const Request& request) { return waited(request) >= policy_.max_wait_us; };
  const auto room = static_cast<std::size_t>(policy_.max_batch);

  const auto gather = [&](Trigger trigger, Queue::iterator lead) {
    Choice choice{trigger, {}};
    Costs costs;
    const std::uint32_t group = trigger == Trigger::kCanary ? canaries_.front().group : lead->group;
    const auto join = [&](Queue::iterator request, Joined joined) {
      choice.members.emplace_back(request, joined);
      costs.add(request->cost);
    };
    if (trigger == Trigger::kCanary) join(canaries_.begin(), Joined::kCanary);
    std::size_t late = choice.members.size();
    for (auto request = lead; request != waiting_.end() && overdue(*request) && late <= room; ++request) {
      late += request->group == group;
    }
    for (auto request = lead; request != waiting_.end() && choice.members.size() < room; ++request) {
      if (request->group != group) continue;
      if (overdue(*request) && (choice.members.empty() || late <= room)) {
        join(request, Joined::kOverdue);
      } else if (choice.members.empty()) {
        join(request, Joined::kLead);
      } else if (costs.admit(request->cost, policy_)) {
        join(request, Joined::kCompatible);
      }
    }
    return choice;
  };

  if (!canaries_.empty()) return gather(Trigger::kCanary, waiting_.begin());
  if (waiting_.empty()) return {};
  const auto oldest = waiting_.begin();
  if (overdue(*oldest)) return gather(Trigger::kOverdue, oldest);
  if (waited(*oldest) >= policy_.hold()) return gather(Trigger::kHeld, oldest);
  if (closed_) return gather(Trigger::kClosed, oldest);
  int tried = 0;
  for (auto lead = oldest; lead != waiting_.end() && tried < kLeadsTried; ++lead) {
    if (group_sizes_.at(lead->group) < policy_.max_batch) continue;
    ++tried;
    if (Choice choice = gather(Trigger::kFull, lead); choice.members.size() == room) return choice;
  }
  return {};
}

Admission DynamicBatchScheduler::submit(std::uint64_t id, double cost, std::uint32_t group, bool canary) {
  check(std::isfinite(cost) && cost > 0, "cost must be finite and positive");
  bool wake = canary;
  {
    const std::lock_guard lock(mutex_);
    check(!by_id_.contains(id), "this id is already waiting");
    if (closed_) return Admission::kClosed;
    Queue& queue = canary ? canaries_ : waiting_;
    if (queue.size() >= (canary ? kMostCanaries : capacity_)) {
      ++stats_.rejected;
      return Admission::kFull;
    }
    queue.push_back({id, cost, group, canary, clock()});
    by_id_.emplace(id, std::prev(queue.end()));
    if (!canary) {
      // Only these can make a batch ready now, or start the wait for the oldest; anything else is found when that ends.
      wake = ++group_sizes_[group] >= policy_.max_batch || waiting_.size() == 1;
    }
    ++stats_.submitted;
    stats_.max_depth = std::max(stats_.max_depth, waiting_.size() + canaries_.size());
  }
  if (wake) changed_.notify_one();
  return Admission::kAccepted;
}

bool DynamicBatchScheduler::cancel(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  remove(found->second);
  ++stats_.cancelled;
  return true;
}

std::optional<Batch> DynamicBatchScheduler::next_batch(std::int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  const std::int64_t deadline = clock() + std::clamp<std::int64_t>(timeout_us, 0, kLongestWait);
  std::optional<Batch> batch;
  for (;;) {
    const std::int64_t now = clock();
    if (const Choice choice = choose(now); !choice.members.empty()) {
      batch = take(choice, now);
      break;
    }
    if (closed_ || now >= deadline) break;
    if (virtual_time_) {
      changed_.wait(lock);
      continue;
    }
    const std::int64_t until = std::min(deadline, due().value_or(deadline));
    changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::microseconds(until)));
  }
  // One notification wakes one thread: whoever leaves work behind passes it on, or the others would sleep through it.
  const bool more = !empty();
  lock.unlock();
  if (more) changed_.notify_one();
  return batch;
}

void DynamicBatchScheduler::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void DynamicBatchScheduler::configure(const Policy& policy) {
  {
    const std::lock_guard lock(mutex_);
    policy_ = checked(policy);
  }
  changed_.notify_all();
}

void DynamicBatchScheduler::advance(std::int64_t us) {
  check(virtual_time_ && us >= 0, "only virtual time can be advanced, and only forward");
  {
    const std::lock_guard lock(mutex_);
    virtual_now_ += us;
  }
  changed_.notify_all();
}

Policy DynamicBatchScheduler::policy() const {
  const std::lock_guard lock(mutex_);
  return policy_;
}

Stats DynamicBatchScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.depth = waiting_.size() + canaries_.size();
  return stats;
}

bool DynamicBatchScheduler::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::int64_t DynamicBatchScheduler::now_us() const {
  const std::lock_guard lock(mutex_);
  return clock();
}

std::optional<std::int64_t> DynamicBatchScheduler::due_us() const {
  const std::lock_guard lock(mutex_);
  return due();
}

std::optional<std::int64_t> DynamicBatchScheduler::due() const {
  if (!canaries_.empty()) return canaries_.front().arrival_us;
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front().arrival_us + std::min(policy_.hold(), policy_.max_wait_us);
}

Batch DynamicBatchScheduler::take(const Choice& choice, std::int64_t now) {
  Batch batch{choice.trigger, choice.members.front().first->group, {}};
  for (const auto& [request, joined] : choice.members) {
    batch.members.push_back({request->id, now - request->arrival_us, joined});
    remove(request);
  }
  const std::size_t size = batch.members.size();
  if (stats_.sizes.size() <= size) stats_.sizes.resize(size + 1);
  ++stats_.sizes[size];
  ++stats_.batches;
  ++stats_.triggers[static_cast<std::size_t>(choice.trigger)];
  stats_.taken += size;
  return batch;
}

void DynamicBatchScheduler::remove(Queue::iterator request) {
  by_id_.erase(request->id);
  if (request->canary) {
    canaries_.erase(request);
    return;
  }
  const auto group = group_sizes_.find(request->group);
  if (--group->second == 0) group_sizes_.erase(group);
  waiting_.erase(request);
}

std::int64_t DynamicBatchScheduler::clock() const {
  if (virtual_time_) return virtual_now_;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace affidavit
