#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "bind.h"
#include "core/append_item.h"
#include "core/leaf.h"
#include "core/tree.h"
#include "core/wire.h"

namespace nb = nanobind;

namespace affidavit {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

Hash to_hash(const nb::bytes& bytes) {
  Hash hash;
  if (bytes.size() != hash.size()) throw nb::value_error("a hash has 32 bytes");
  std::memcpy(hash.data(), bytes.c_str(), hash.size());
  return hash;
}

// An item that owns the bytes its views look at, and so stays where it is.
class LogItem {
 public:
  explicit LogItem(std::string_view data) : data_(data), item_(read_append_item(data_)), plain_(is_plain(item_)) {}
  LogItem(const LogItem&) = delete;
  LogItem& operator=(const LogItem&) = delete;

  const AppendItem& item() const { return item_; }
  std::string_view data() const { return data_; }
  bool plain() const { return plain_; }

  // Tenant, request id and step, a NUL between them.
  std::string key() const {
    std::string key;
    for (const std::string_view part : {item_.draft.tenant, item_.draft.request_id, item_.step}) {
      if (!key.empty()) key.push_back('\0');
      key.append(part);
    }
    return key;
  }

  std::optional<std::uint64_t> newest_reference() const {
    const Draft& draft = item_.draft;
    std::optional<std::uint64_t> newest;
    for (const auto& index : {draft.parent_index, draft.reused_from, draft.environment_index}) {
      if (index) newest = std::max(newest.value_or(0), *index);
    }
    if (!draft.children.empty()) newest = std::max(newest.value_or(0), draft.children.back().last);
    return newest;
  }

  // No byte of an item becomes more than six of a leaf (\u00XX); the names of its members come on top.
  std::size_t longest_leaf() const {
    return 1024 + 512 * item_.draft.steps.size() + 48 * item_.draft.children.size() + 6 * data_.size();
  }

 private:
  std::string data_;
  AppendItem item_;
  bool plain_;
};

std::vector<std::unique_ptr<LogItem>> read_append_request(const nb::bytes& message) {
  const std::string_view bytes = view(message);
  nb::gil_scoped_release release;
  std::vector<std::unique_ptr<LogItem>> items;
  for (const std::string_view item : split_append_request(bytes)) items.push_back(std::make_unique<LogItem>(item));
  return items;
}

// A group of records: their leaves, and the tree that grew by them.
class Growth {
 public:
  Growth(std::uint64_t size, const std::vector<nb::bytes>& peaks, const std::vector<const LogItem*>& items,
         std::string_view time)
      : tree_(size, hashes(peaks)) {
    nb::gil_scoped_release release;
    leaves_.reserve(items.size());
    for (const LogItem* item : items) {
      leaves_.push_back(leaf_bytes(item->item(), tree_.size(), time));
      tree_.append(leaf_hash(leaves_.back()));
    }
    root_ = tree_.root();
  }

  std::uint64_t size() const { return tree_.size(); }
  nb::bytes root() const { return to_bytes(affidavit::view(root_)); }

  std::vector<nb::bytes> peaks() const {
    std::vector<nb::bytes> peaks;
    for (const Hash& peak : tree_.peaks()) peaks.push_back(to_bytes(affidavit::view(peak)));
    return peaks;
  }

  std::vector<nb::bytes> leaves() const {
    std::vector<nb::bytes> leaves;
    for (const std::string& leaf : leaves_) leaves.push_back(to_bytes(leaf));
    return leaves;
  }

  std::vector<std::pair<nb::bytes, nb::bytes>> nodes() const {
    std::vector<std::pair<nb::bytes, nb::bytes>> nodes;
    for (const Node& node : tree_.completed()) {
      char place[9] = {static_cast<char>(node.level)};
      for (int i = 0; i < 8; ++i) place[1 + i] = static_cast<char>(node.index >> (56 - 8 * i));
      nodes.emplace_back(to_bytes({place, sizeof place}), to_bytes(affidavit::view(node.hash)));
    }
    return nodes;
  }

  std::vector<nb::bytes> path(std::uint64_t index) const {
    std::vector<nb::bytes> path;
    for (const Hash& hash : tree_.path(index)) path.push_back(to_bytes(affidavit::view(hash)));
    return path;
  }

 private:
  static std::vector<Hash> hashes(const std::vector<nb::bytes>& bytes) {
    std::vector<Hash> hashes;
    for (const nb::bytes& hash : bytes) hashes.push_back(to_hash(hash));
    return hashes;
  }

  std::vector<std::string> leaves_;
  GrowingTree tree_;
  Hash root_;
};

// One entry of AppendRecordsResponse.results, field head included: entries one after the other are a message.
nb::bytes append_result(std::uint64_t sequence, std::uint64_t index, const nb::bytes& leaf, const nb::bytes& salt,
                        const nb::bytes& note, std::uint64_t tree_size, const nb::sequence& path, bool repeated) {
  std::string hashes;
  for (const nb::handle& hash : path) put_bytes(hashes, 3, view(nb::borrow<nb::bytes>(hash)));
  std::string receipt;
  receipt.reserve(leaf.size() + salt.size() + note.size() + hashes.size() + 64);
  put_bytes(receipt, 1, view(leaf));
  put_number(receipt, 2, index);
  put_bytes(receipt, 3, view(salt));
  put_head(receipt, 4, bytes_size(note.size()));
  put_bytes(receipt, 1, view(note));
  put_head(receipt, 5, number_size(index) + number_size(tree_size) + hashes.size());
  put_number(receipt, 1, index);
  put_number(receipt, 2, tree_size);
  receipt.append(hashes);
  std::string out;
  out.reserve(receipt.size() + 32);
  const std::size_t size =
      number_size(sequence) + 1 + varint_size(receipt.size()) + receipt.size() + number_size(repeated);
  put_head(out, 1, size);
  put_number(out, 1, sequence);
  put_head(out, 2, receipt.size());
  out.append(receipt);
  put_number(out, 4, repeated);
  return to_bytes(out);
}

}  // namespace

void bind_log(nb::module_& m) {
  nb::class_<LogItem>(m, "LogItem", "An affidavit.audit.v1.AppendItem as it was sent.")
      .def(
          "__init__",
          [](LogItem* self, const nb::bytes& data) {
            try {
              new (self) LogItem(view(data));
            } catch (const WireError& error) {
              throw nb::value_error(error.what());
            }
          },
          nb::arg("data"), "Raises ValueError for bytes that are no item, or in a form that is not read here.")
      .def_prop_ro(
          "data", [](const LogItem& self) { return to_bytes(self.data()); }, "The item, serialised.")
      .def_prop_ro("sequence", [](const LogItem& self) { return self.item().sequence; })
      .def_prop_ro(
          "key", [](const LogItem& self) { return to_bytes(self.key()); },
          "Tenant, request id, step; NUL between them.")
      .def_prop_ro("salt", [](const LogItem& self) { return to_bytes(self.item().salt); })
      .def_prop_ro("content_digest", [](const LogItem& self) { return to_bytes(self.item().content_digest); })
      .def_prop_ro("plain", &LogItem::plain, "Whether record v1 certainly holds it; else `check_draft` decides.")
      .def_prop_ro("newest_reference", &LogItem::newest_reference, "The largest index that its draft names.")
      .def_prop_ro("longest_leaf", &LogItem::longest_leaf, "Bytes that its leaf has at most: a rough bound.")
      .def(
          "leaf",
          [](const LogItem& self, std::uint64_t index, std::string_view time) {
            return to_bytes(leaf_bytes(self.item(), index, time));
          },
          nb::arg("index"), nb::arg("time"), "Its leaf at `index`; `time` is RFC 3339 UTC with microseconds.");

  m.def(
      "read_append_request",
      [](const nb::bytes& message) {
        try {
          return read_append_request(message);
        } catch (const WireError& error) {
          throw nb::value_error(error.what());
        }
      },
      nb::arg("message"), "The items of a serialised AppendRecordsRequest. Raises ValueError as LogItem does.");

  nb::class_<Growth>(m, "Growth", "A group of records: their leaves, and the Merkle tree that grew by them.")
      .def(nb::init<std::uint64_t, const std::vector<nb::bytes>&, const std::vector<const LogItem*>&,
                    std::string_view>(),
           nb::arg("size"), nb::arg("peaks"), nb::arg("items"), nb::arg("time"),
           R"(Make the leaves of checked `items`, from index `size` on, and grow the tree.

Args:
    size: leaves of the tree so far.
    peaks: 32 bytes each, its complete subtrees, largest first.
    time: of every leaf, RFC 3339 UTC with microseconds.

Raises:
    ValueError: another number of peaks than `size` has bits, or a peak that is no hash.)")
      .def_prop_ro("size", &Growth::size, "Leaves of the tree now.")
      .def_prop_ro("root", &Growth::root)
      .def_prop_ro("peaks", &Growth::peaks, "The complete subtrees that now cover the tree, largest first.")
      .def_prop_ro("leaves", &Growth::leaves, "The leaves' bytes, in the order of the items.")
      .def_prop_ro("nodes", &Growth::nodes,
                   "The subtrees that became complete: key (level, 1 byte; index, 8, big-endian) and hash.")
      .def("path", &Growth::path, nb::arg("index"),
           "The audit path of one of these leaves to `root`. Raises IndexError for another.");

  m.def("append_result", &append_result, nb::arg("sequence"), nb::arg("index"), nb::arg("leaf"), nb::arg("salt"),
        nb::arg("note"), nb::arg("tree_size"), nb::arg("path"), nb::arg("repeated"),
        "One receipt as an entry of a serialised AppendRecordsResponse; entries one after the other are a message.");

  m.def(
      "sha256", [](const nb::bytes& data) { return to_bytes(affidavit::view(sha256({view(data)}))); }, nb::arg("data"),
      "FIPS 180-4, by the processor's instructions where it has them.");
  m.def(
      "sha256_portable", [](const nb::bytes& data) { return to_bytes(affidavit::view(sha256_portable({view(data)}))); },
      nb::arg("data"), "The same without them.");
}

}  // namespace affidavit
