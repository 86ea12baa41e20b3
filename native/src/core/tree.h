// The RFC 6962 Merkle tree as its appender sees it (libs/evidence/merkle.py is the reference that tests compare with).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/sha256.h"

namespace affidavit {

struct Node {
  int level;  // of the complete subtree of 2^level leaves, the `index`-th of its level
  std::uint64_t index;
  Hash hash;
};

Hash leaf_hash(std::string_view leaf);
Hash node_hash(const Hash& left, const Hash& right);

// A tree that grows from where another one ended, and proves what it grew.
class GrowingTree {
 public:
  // `peaks`: the complete subtrees that cover `size` leaves, largest first. Throws std::invalid_argument for another
  // number of them than `size` has bits.
  GrowingTree(std::uint64_t size, std::vector<Hash> peaks);

  void append(const Hash& leaf);

  std::uint64_t size() const { return size_; }
  const std::vector<Hash>& peaks() const { return peaks_; }
  const std::vector<Node>& completed() const { return completed_; }  // in the order in which they became complete
  Hash root() const;

  // The audit path of a leaf that was appended here, siblings from the leaf upwards (RFC 9162 2.1.3.1). Throws
  // std::out_of_range for any other.
  std::vector<Hash> path(std::uint64_t index) const;

 private:
  void keep(const Node& node);
  Hash subtree(std::uint64_t begin, std::uint64_t end) const;
  const Hash& node(int level, std::uint64_t index) const;

  std::uint64_t first_, size_;
  std::vector<Hash> first_peaks_, peaks_;
  std::vector<Node> completed_;
  std::vector<std::vector<Hash>> levels_;  // completed hashes of each level, from index first_ >> level
};

}  // namespace affidavit
