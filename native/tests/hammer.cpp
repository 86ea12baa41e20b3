// Hammers the core from many threads and with random sizes, for the sanitizers to watch; no Python here.
//
// usage: hammer SECONDS
//
// The last line of its output is a digest of what image work, CTC decoding and the log answered to fixed inputs. A
// sanitizer build has no function clones (core/clones.h), so the same digest from a plain build says that the clones
// change no bit.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/append_item.h"
#include "core/crop.h"
#include "core/ctc.h"
#include "core/leaf.h"
#include "core/resize.h"
#include "core/scheduler.h"
#include "core/tree.h"
#include "core/wire.h"

namespace {

using namespace affidavit;
using Random = std::mt19937_64;
using Clock = std::chrono::steady_clock;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "hammer: %s\n", what);
  std::abort();
}

// std::uniform_int_distribution differs between standard libraries; the digest must not.
int below(Random& random, int bound) { return static_cast<int>(random() % static_cast<std::uint64_t>(bound)); }

struct Digest {
  std::uint64_t value = 14695981039346656037U;  // FNV-1a

  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value = (value ^ at[i]) * 1099511628211U;
  }
};

// Buffers of exactly the size that is promised, so that one byte too many is seen.
void image_once(Random& random, Digest& digest) {
  const int height = 1 + below(random, 70), width = 1 + below(random, 150), channels = below(random, 2) ? 3 : 1;
  const std::size_t gap = below(random, 5);
  const std::size_t stride = static_cast<std::size_t>(width) * channels + gap;
  std::unique_ptr<std::uint8_t[]> pixels(new std::uint8_t[stride * height - gap]);
  for (std::size_t i = 0; i < stride * height - gap; ++i) pixels[i] = static_cast<std::uint8_t>(random());
  const Image image{pixels.get(), height, width, channels, static_cast<std::ptrdiff_t>(stride)};

  const int out_h = 1 + below(random, 50), out_w = 1 + below(random, 120), content = 1 + below(random, out_w);
  const std::size_t floats = std::size_t{3} * out_h * out_w;
  std::unique_ptr<float[]> tensor(new float[floats]);
  const Planes planes{tensor.get(), out_h, out_w};
  const Normalization normalization{{0.017F, 0.0175F, 0.0174F}, {-2.1F, -2.0F, -1.8F}};
  for (const Filter filter : {Filter::kLinear, Filter::kArea}) {
    resize_normalize(image, filter, normalization, content, planes);
    digest.add(tensor.get(), floats * sizeof(float));
  }

  Quad quad;
  const float x = float(below(random, 200)) - 50, y = float(below(random, 120)) - 50;
  const float w = 1 + float(below(random, 300)), h = 1 + float(below(random, 100));
  quad = {{{x, y}, {x + w, y + float(below(random, 9))}, {x + w, y + h + 9}, {x + float(below(random, 3)) / 4, y + h}}};
  try {
    crop_normalize(image, quad, normalization, content, planes);
    digest.add(tensor.get(), floats * sizeof(float));
    const std::size_t bytes = static_cast<std::size_t>(out_h) * out_w * channels;
    std::unique_ptr<std::uint8_t[]> cut(new std::uint8_t[bytes]);
    crop_quad(image, quad, out_h, out_w, cut.get());
    digest.add(cut.get(), bytes);
  } catch (const std::invalid_argument&) {  // not convex
    digest.add("refused", 7);
  }
}

void ctc_once(Random& random, Digest& digest) {
  const int steps = below(random, 20), classes = 1 + below(random, 3000);
  std::unique_ptr<float[]> rows(new float[static_cast<std::size_t>(steps) * classes]);
  for (int i = 0; i < steps * classes; ++i) rows[i] = float(below(random, 1000)) / 1000;
  const CtcPath path = ctc_greedy(rows.get(), steps, classes, classes, below(random, classes));
  digest.add(path.indices.data(), path.indices.size() * sizeof(std::int32_t));
  digest.add(path.positions.data(), path.positions.size() * sizeof(std::int32_t));
  digest.add(path.confidence.data(), path.confidence.size() * sizeof(float));
}

// A message of the log, cut short and with bytes changed as a hostile caller would send it, and a tree that grows by
// it.
void log_once(Random& random, Digest& digest) {
  std::string draft, item, message;
  const std::string hash(32, 'h');
  put_bytes(draft, 1, "default");
  put_bytes(draft, 2, std::string(1 + below(random, 130), 'r'));
  put_number(draft, 3, 1 + below(random, 9));
  put_number(draft, 4, 1 + below(random, 3));
  put_bytes(draft, 6, hash);
  put_bytes(draft, 7, below(random, 2) ? R"({"a":[1,{"b":null}],"dpi":200})" : R"({"a":)");
  put_bytes(draft, 10, std::string(1 + below(random, 3), static_cast<char>(below(random, 128))));
  put_number(item, 1, random());
  put_bytes(item, 2, "page/1");
  put_bytes(item, 3, hash);
  put_bytes(item, 4, draft);
  put_bytes(item, 5, hash);
  for (int i = 1 + below(random, 3); i; --i) put_bytes(message, 1, item);
  for (int i = below(random, 4); i; --i) message[random() % message.size()] = static_cast<char>(random());
  message.resize(message.size() - (below(random, 3) ? 0 : random() % message.size()));
  // A copy of exactly that size on the heap, so that one byte too many is seen.
  std::unique_ptr<char[]> exact(new char[message.size()]);
  std::memcpy(exact.get(), message.data(), message.size());
  const std::uint64_t size = random() % 100;
  GrowingTree tree(size, std::vector<Hash>(static_cast<std::size_t>(__builtin_popcountll(size))));
  try {
    for (const std::string_view part : split_append_request({exact.get(), message.size()})) {
      const AppendItem read = read_append_item(part);
      if (!is_plain(read)) continue;
      const std::string leaf = leaf_bytes(read, tree.size(), "2026-11-30T21:09:00.000001Z");
      tree.append(leaf_hash(leaf));
      digest.add(leaf.data(), leaf.size());
    }
  } catch (const WireError&) {
    digest.add("refused", 7);
  }
  for (std::uint64_t index = size; index < tree.size(); ++index) {
    for (const Hash& hash_above : tree.path(index)) digest.add(hash_above.data(), hash_above.size());
  }
  const Hash root = tree.root();
  digest.add(root.data(), root.size());
  require(sha256({message}) == sha256_portable({message}), "two ways to hash differ");
}

// One life of a scheduler: submitters, cancelling ones among them, engines, a canary, settings that change, close.
void scheduler_life(std::uint64_t seed) {
  constexpr int kSubmitters = 4, kEngines = 3, kEach = 1500;
  DynamicBatchScheduler scheduler(48, {6, 300, 100, 1.0, 1.25}, false);
  std::vector<std::atomic<int>> fate(kSubmitters * kEach + 64);
  std::atomic<bool> feeding{true};
  std::vector<std::thread> feeders, engines;
  for (int s = 0; s < kSubmitters; ++s) {
    feeders.emplace_back([&, s] {
      Random random(seed + s);
      for (int i = 0; i < kEach; ++i) {
        const int id = s * kEach + i;
        while (scheduler.submit(id, 1 + below(random, 9), id % 3, false) == Admission::kFull) std::this_thread::yield();
        if (below(random, 8) == 0 && scheduler.cancel(id)) ++fate[id];
      }
    });
  }
  for (int e = 0; e < kEngines; ++e) {
    engines.emplace_back([&] {
      for (;;) {
        const auto batch = scheduler.next_batch(50'000);
        if (!batch && scheduler.closed()) return;
        if (!batch) continue;
        require(batch->members.size() <= 6, "a batch is too large");
        for (const Member& member : batch->members) {
          ++fate[member.id];
          require(member.joined == Joined::kCanary || member.id % 3 == batch->group, "a batch has two groups");
        }
      }
    });
  }
  std::thread tuner([&] {
    for (int i = 0; feeding; i = (i + 1) % 64) {
      scheduler.configure(
          {1 + i % 6, 50 + i * 10, i % 3 ? std::optional<std::int64_t>(i) : std::nullopt, i * 0.1, 1.5});
      const Stats stats = scheduler.stats();
      require(stats.submitted == stats.taken + stats.cancelled + stats.depth, "a request is neither here nor there");
      scheduler.due_us();
      std::this_thread::yield();
    }
  });
  int canaries = 0;
  for (; canaries < 64; ++canaries) {
    while (scheduler.submit(kSubmitters * kEach + canaries, 1, 0, true) == Admission::kFull) std::this_thread::yield();
  }
  for (auto& thread : feeders) thread.join();
  feeding = false;
  tuner.join();
  scheduler.close();
  for (auto& thread : engines) thread.join();
  for (const auto& count : fate) require(count == 1, "a request was lost or came twice");
  require(scheduler.submit(1, 1, 0, false) == Admission::kClosed, "a closed scheduler accepts");
}

}  // namespace

int main(int argc, char** argv) {
  const auto until = Clock::now() + std::chrono::milliseconds(argc > 1 ? std::atoi(argv[1]) * 1000 : 1000);
  Digest digest;
  Random fixed(20260801);
  for (int i = 0; i < 300; ++i) {
    image_once(fixed, digest);
    ctc_once(fixed, digest);
    log_once(fixed, digest);
  }
  std::vector<std::thread> workers;
  std::atomic<int> calls{0};
  for (int t = 0; t < 3; ++t) {
    workers.emplace_back([&, t] {
      Random random(t);
      Digest unused;
      while (Clock::now() < until) {
        image_once(random, unused);
        ctc_once(random, unused);
        log_once(random, unused);
        ++calls;
      }
    });
  }
  int lives = 0;
  do {
    scheduler_life(++lives);
  } while (Clock::now() < until);
  for (auto& thread : workers) thread.join();
  std::printf("%d scheduler lives, %d image, text and log calls\n", lives, calls.load());
  std::printf("digest %016llx\n", static_cast<unsigned long long>(digest.value));
}
