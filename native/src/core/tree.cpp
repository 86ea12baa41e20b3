#include "core/tree.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace affidavit {

Hash leaf_hash(std::string_view leaf) { return sha256({std::string_view("\0", 1), leaf}); }

Hash node_hash(const Hash& left, const Hash& right) { return sha256({"\1", view(left), view(right)}); }

GrowingTree::GrowingTree(std::uint64_t size, std::vector<Hash> peaks)
    : first_(size), size_(size), first_peaks_(peaks), peaks_(std::move(peaks)) {
  if (peaks_.size() != static_cast<std::size_t>(std::popcount(size)))
    throw std::invalid_argument("a tree has one peak for each bit that is set in its size");
}

void GrowingTree::append(const Hash& leaf) {
  Hash hash = leaf;
  std::uint64_t index = size_;
  int level = 0;
  keep({level, index, hash});
  while (index & 1) {
    hash = node_hash(peaks_.back(), hash);
    peaks_.pop_back();
    index >>= 1;
    keep({++level, index, hash});
  }
  peaks_.push_back(hash);
  ++size_;
}

void GrowingTree::keep(const Node& node) {
  if (levels_.size() <= static_cast<std::size_t>(node.level)) levels_.emplace_back();
  levels_[node.level].push_back(node.hash);
  completed_.push_back(node);
}

Hash GrowingTree::root() const {
  if (peaks_.empty()) return sha256({});
  Hash hash = peaks_.back();
  for (auto peak = peaks_.rbegin() + 1; peak != peaks_.rend(); ++peak) hash = node_hash(*peak, hash);
  return hash;
}

std::vector<Hash> GrowingTree::path(std::uint64_t index) const {
  if (index < first_ || index >= size_) throw std::out_of_range("the leaf was not appended here");
  std::vector<Hash> path;
  std::uint64_t begin = 0, end = size_;
  while (end - begin > 1) {
    const std::uint64_t middle = begin + std::bit_floor(end - begin - 1);
    if (index < middle) {
      path.push_back(subtree(middle, end));
      end = middle;
    } else {
      path.push_back(subtree(begin, middle));
      begin = middle;
    }
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// `begin` is a multiple of the largest power of two in the range: complete, or the ragged right edge.
Hash GrowingTree::subtree(std::uint64_t begin, std::uint64_t end) const {
  const std::uint64_t count = end - begin;
  if (std::has_single_bit(count)) {
    const int level = std::countr_zero(count);
    return node(level, begin >> level);
  }
  const std::uint64_t half = std::bit_floor(count - 1);
  return node_hash(subtree(begin, begin + half), subtree(begin + half, end));
}

const Hash& GrowingTree::node(int level, std::uint64_t index) const {
  const std::uint64_t from = first_ >> level;
  // An old peak stands where the tree that was there ended: complete, and left of what is new.
  if (index < from || (level >= static_cast<int>(levels_.size()))) {
    if (!(first_ >> level & 1) || index != from - 1) throw std::out_of_range("the hash is not of this growth");
    return first_peaks_[static_cast<std::size_t>(std::popcount(first_ >> level) - 1)];
  }
  return levels_[level].at(index - from);
}

}  // namespace affidavit
