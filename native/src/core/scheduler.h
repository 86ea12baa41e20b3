// Which waiting requests an engine takes next, and when: one queue, many submitters, many engine threads.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace affidavit {

enum class Admission { kAccepted, kFull, kClosed };

// Why a batch was given out.
enum class Trigger { kCanary, kOverdue, kHeld, kFull, kClosed };
constexpr int kTriggers = 5;

// Why a request is in its batch.
enum class Joined { kCanary, kLead, kOverdue, kCompatible };

struct Policy {
  // Requests in a batch, 1 to kMostInBatch.
  int max_batch;
  // A request that has waited so long is overdue: it goes first, and its cost matters only when too many are.
  std::int64_t max_wait_us;
  // An idle engine waits for a fuller batch until the oldest request has waited so long; nothing stands for
  // max_wait_us.
  std::optional<std::int64_t> hold_us;
  // A batch takes costs within mean +- sigma * standard deviation of its costs ...
  double sigma;
  // ... and within a factor of `ratio` while they are all equal.
  double ratio;

  std::int64_t hold() const { return hold_us.value_or(max_wait_us); }
};

struct Member {
  std::uint64_t id;
  std::int64_t queue_us;
  Joined joined;
};

struct Batch {
  Trigger trigger;
  std::uint32_t group;
  std::vector<Member> members;  // the canary first, then in the order of arrival
};

struct Stats {
  std::uint64_t submitted = 0;  // accepted
  std::uint64_t rejected = 0;   // refused because the queue was full
  std::uint64_t cancelled = 0;
  std::uint64_t taken = 0;
  std::uint64_t batches = 0;
  std::array<std::uint64_t, kTriggers> triggers{};
  std::vector<std::uint64_t> sizes;  // sizes[n]: batches of n requests
  std::size_t depth = 0;
  std::size_t max_depth = 0;
};

class DynamicBatchScheduler {
 public:
  static constexpr int kMostInBatch = 4096;
  // The canary's lane has room of its own: a full queue must not look like a sick engine.
  static constexpr std::size_t kMostCanaries = 16;

  // With virtual time the clock stands at 0 until `advance`, and waiting threads wait for it.
  // Throws std::invalid_argument when the capacity or a setting is out of range.
  DynamicBatchScheduler(std::size_t capacity, const Policy& policy, bool virtual_time);

  // Throws std::invalid_argument when the id is already waiting or the cost is not finite and positive.
  Admission submit(std::uint64_t id, double cost, std::uint32_t group, bool canary);

  // False when the request is not waiting: taken, cancelled or never submitted.
  bool cancel(std::uint64_t id);

  // Waits for a batch. Nothing after `timeout_us`, or when the scheduler is closed and its queue is empty.
  std::optional<Batch> next_batch(std::int64_t timeout_us);

  // Refuses what comes from now on, wakes every waiting thread, and gives out what is left without holding it.
  void close();

  void configure(const Policy& policy);
  void advance(std::int64_t us);

  Policy policy() const;
  Stats stats() const;
  bool closed() const;
  std::int64_t now_us() const;
  // When a batch becomes due if nothing else arrives; nothing when no request waits.
  std::optional<std::int64_t> due_us() const;

 private:
  struct Request {
    std::uint64_t id;
    double cost;
    std::uint32_t group;
    bool canary;
    std::int64_t arrival_us;
  };
  using Queue = std::list<Request>;
  struct Choice {
    Trigger trigger;
    std::vector<std::pair<Queue::iterator, Joined>> members;
  };

  Choice choose(std::int64_t now);
  Batch take(const Choice& choice, std::int64_t now);
  void remove(Queue::iterator request);
  bool empty() const { return waiting_.empty() && canaries_.empty(); }
  std::optional<std::int64_t> due() const;
  std::int64_t clock() const;

  const std::size_t capacity_;
  const bool virtual_time_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Policy policy_;
  bool closed_ = false;
  std::int64_t virtual_now_ = 0;
  Queue waiting_;   // in the order of arrival, so the overdue ones are its head
  Queue canaries_;  // in the order of arrival
  std::unordered_map<std::uint64_t, Queue::iterator> by_id_;
  std::unordered_map<std::uint32_t, int> group_sizes_;  // of waiting_
  Stats stats_;
};

}  // namespace affidavit
