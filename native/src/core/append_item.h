// An AppendItem of affidavit.audit.v1 as it lies in its message: views into the bytes, nothing copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace affidavit {

struct Step {
  std::string_view service, software, model, version, model_hash, engine, engine_version, precision, device_id,
      input_digest, output_digest;
  std::uint64_t threads = 0;
};

struct IndexRange {
  std::uint64_t first = 0, last = 0;
};

struct Draft {
  std::string_view tenant, request_id, input_commitment, options_json, output_commitment, status, bundle, body_json;
  std::uint64_t kind = 0, phase = 0, latency_us = 0;
  std::optional<std::uint64_t> parent_index, reused_from, environment_index;
  std::vector<std::string_view> degraded;
  std::vector<Step> steps;
  std::vector<IndexRange> children;
  bool spooled = false;
};

struct AppendItem {
  std::uint64_t sequence = 0;
  std::string_view step, content_digest, salt;
  Draft draft;
};

// Reads a serialised AppendItem; the views live as long as `bytes`. Throws WireError for bytes that are none, or in a
// form that no usual encoder writes (a message field given in parts).
AppendItem read_append_item(std::string_view bytes);

// The serialised items of an AppendRecordsRequest. Throws WireError.
std::vector<std::string_view> split_append_request(std::string_view bytes);

// Whether record v1 certainly holds it: the usual case, at a glance. Not so: `check_draft` in libs/evidence/draft.py
// decides, and says why; texts beyond ASCII, children and bodies are left to it.
bool is_plain(const AppendItem& item);

}  // namespace affidavit
