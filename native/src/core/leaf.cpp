#include "core/leaf.h"

#include <array>
#include <charconv>
#include <optional>

#include "core/plain_json.h"
#include "core/sha256.h"

namespace affidavit {
namespace {

constexpr std::array<std::string_view, 9> kKinds = {"",       "document",  "page",        "decision",   "generation",
                                                    "search", "inference", "model_event", "environment"};
constexpr std::array<std::string_view, 4> kPhases = {"", "single", "opened", "closed"};

void put_integer(std::string& out, std::uint64_t value) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void put_index(std::string& out, std::uint64_t value) {
  out.push_back('"');
  put_integer(out, value);
  out.push_back('"');
}

void put_index(std::string& out, const std::optional<std::uint64_t>& value) {
  value ? put_index(out, *value) : void(out.append("null"));
}

void put_text(std::string& out, std::string_view text) {
  text.empty() ? void(out.append("null")) : put_json_string(out, text);
}

void put_hash(std::string& out, std::string_view hash) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (hash.empty()) {
    out.append("null");
    return;
  }
  out.push_back('"');
  for (const char c : hash) {
    out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kHex[c & 15]);
  }
  out.push_back('"');
}

void put_salted(std::string& out, std::string_view salt, std::string_view digest) {
  if (digest.empty()) {
    out.append("null");
    return;
  }
  const Hash hash = sha256({salt, digest});
  put_hash(out, view(hash));
}

void put_step(std::string& out, const Step& step, std::string_view salt) {
  put_text(out.append("{\"device_id\":"), step.device_id);
  put_text(out.append(",\"engine\":"), step.engine);
  put_text(out.append(",\"engine_version\":"), step.engine_version);
  put_salted(out.append(",\"input_hash\":"), salt, step.input_digest);
  put_text(out.append(",\"model\":"), step.model);
  put_hash(out.append(",\"model_hash\":"), step.model_hash);
  put_salted(out.append(",\"output_hash\":"), salt, step.output_digest);
  put_text(out.append(",\"precision\":"), step.precision);
  put_json_string(out.append(",\"service\":"), step.service);
  put_text(out.append(",\"software\":"), step.software);
  out.append(",\"threads\":");
  step.threads ? put_integer(out, step.threads) : void(out.append("null"));
  put_text(out.append(",\"version\":"), step.version);
  out.push_back('}');
}

template <typename Items, typename Put>
void put_list(std::string& out, const Items& items, Put put) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.push_back(',');
    first = false;
    put(item);
  }
  out.push_back(']');
}

}  // namespace

std::string leaf_bytes(const AppendItem& item, std::uint64_t index, std::string_view time) {
  const Draft& draft = item.draft;
  std::string out;
  out.reserve(1536);
  out.push_back('{');
  if (!draft.body_json.empty()) out.append("\"body\":").append(draft.body_json).push_back(',');
  put_text(out.append("\"bundle\":"), draft.bundle);
  if (!draft.children.empty()) {
    out.append(",\"children\":");
    put_list(out, draft.children, [&out](const IndexRange& range) {
      out.push_back('"');
      put_integer(out, range.first);
      if (range.last != range.first) {
        out.push_back('-');
        put_integer(out, range.last);
      }
      out.push_back('"');
    });
  }
  out.append(",\"degraded\":");
  put_list(out, draft.degraded, [&out](std::string_view text) { put_json_string(out, text); });
  put_index(out.append(",\"environment_index\":"), draft.environment_index);
  put_index(out.append(",\"index\":"), index);
  put_hash(out.append(",\"input_commitment\":"), draft.input_commitment);
  put_json_string(out.append(",\"kind\":"), kKinds.at(draft.kind));
  put_index(out.append(",\"latency_us\":"), draft.latency_us);
  out.append(",\"options\":").append(draft.options_json.empty() ? "null" : draft.options_json);
  put_hash(out.append(",\"output_commitment\":"), draft.output_commitment);
  put_index(out.append(",\"parent_index\":"), draft.parent_index);
  put_json_string(out.append(",\"phase\":"), kPhases.at(draft.phase));
  put_json_string(out.append(",\"request_id\":"), draft.request_id);
  put_index(out.append(",\"reused_from\":"), draft.reused_from);
  out.append(",\"spooled\":").append(draft.spooled ? "true" : "false");
  put_text(out.append(",\"status\":"), draft.status);
  out.append(",\"steps\":");
  put_list(out, draft.steps, [&](const Step& step) { put_step(out, step, item.salt); });
  put_json_string(out.append(",\"tenant\":"), draft.tenant);
  put_json_string(out.append(",\"time\":"), time);
  out.append(",\"v\":1}");
  return out;
}

}  // namespace affidavit
