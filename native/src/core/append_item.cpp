#include "core/append_item.h"

#include "core/plain_json.h"
#include "core/wire.h"

namespace affidavit {
namespace {

constexpr std::size_t kMaxName = 128, kMaxText = 512, kMaxJson = 32'768, kMaxSteps = 64, kMaxDegraded = 64, kHash = 32;
constexpr std::uint64_t kKinds = 8, kPhases = 3;

Step read_step(std::string_view bytes) {
  Step step;
  WireReader reader(bytes);
  for (WireField field; reader.next(field);) {
    switch (field.number) {
      case 1:
        step.service = field.text();
        break;
      case 2:
        step.software = field.text();
        break;
      case 3:
        step.model = field.text();
        break;
      case 4:
        step.version = field.text();
        break;
      case 5:
        step.model_hash = field.text();
        break;
      case 6:
        step.engine = field.text();
        break;
      case 7:
        step.engine_version = field.text();
        break;
      case 8:
        step.precision = field.text();
        break;
      case 9:
        step.threads = static_cast<std::uint32_t>(field.varint());
        break;
      case 10:
        step.device_id = field.text();
        break;
      case 11:
        step.input_digest = field.text();
        break;
      case 12:
        step.output_digest = field.text();
        break;
      default:
        break;
    }
  }
  return step;
}

IndexRange read_range(std::string_view bytes) {
  IndexRange range;
  WireReader reader(bytes);
  for (WireField field; reader.next(field);) {
    if (field.number == 1) range.first = field.varint();
    if (field.number == 2) range.last = field.varint();
  }
  return range;
}

Draft read_draft(std::string_view bytes) {
  Draft draft;
  WireReader reader(bytes);
  for (WireField field; reader.next(field);) {
    switch (field.number) {
      case 1:
        draft.tenant = field.text();
        break;
      case 2:
        draft.request_id = field.text();
        break;
      case 3:
        draft.kind = static_cast<std::uint32_t>(field.varint());  // as every reader of an enum
        break;
      case 4:
        draft.phase = static_cast<std::uint32_t>(field.varint());
        break;
      case 5:
        draft.parent_index = field.varint();
        break;
      case 6:
        draft.input_commitment = field.text();
        break;
      case 7:
        draft.options_json = field.text();
        break;
      case 8:
        draft.output_commitment = field.text();
        break;
      case 9:
        draft.status = field.text();
        break;
      case 10:
        draft.degraded.push_back(field.text());
        break;
      case 11:
        draft.reused_from = field.varint();
        break;
      case 12:
        draft.spooled = field.varint() != 0;
        break;
      case 13:
        draft.latency_us = field.varint();
        break;
      case 14:
        draft.bundle = field.text();
        break;
      case 15:
        draft.environment_index = field.varint();
        break;
      case 16:
        draft.steps.push_back(read_step(field.text()));
        break;
      case 17:
        draft.children.push_back(read_range(field.text()));
        break;
      case 18:
        draft.body_json = field.text();
        break;
      default:
        break;
    }
  }
  return draft;
}

bool is_name(std::string_view text) { return !text.empty() && text.size() <= kMaxName && is_printable_ascii(text); }

bool is_text(std::string_view text) { return text.size() <= kMaxText && is_printable_ascii(text); }

bool is_hash(std::string_view bytes) { return bytes.empty() || bytes.size() == kHash; }

bool is_plain_step(const Step& step) {
  if (step.service.empty() || !is_hash(step.model_hash) || !is_hash(step.input_digest) || !is_hash(step.output_digest))
    return false;
  for (const std::string_view text : {step.service, step.software, step.model, step.version, step.engine,
                                      step.engine_version, step.precision, step.device_id}) {
    if (!is_text(text)) return false;
  }
  return true;
}

}  // namespace

AppendItem read_append_item(std::string_view bytes) {
  AppendItem item;
  bool has_draft = false;
  WireReader reader(bytes);
  for (WireField field; reader.next(field);) {
    switch (field.number) {
      case 1:
        item.sequence = field.varint();
        break;
      case 2:
        item.step = field.text();
        break;
      case 3:
        item.content_digest = field.text();
        break;
      case 4:
        if (has_draft) throw WireError("a draft comes in parts");
        item.draft = read_draft(field.text());
        has_draft = true;
        break;
      case 5:
        item.salt = field.text();
        break;
      default:
        break;
    }
  }
  return item;
}

std::vector<std::string_view> split_append_request(std::string_view bytes) {
  std::vector<std::string_view> items;
  WireReader reader(bytes);
  for (WireField field; reader.next(field);) {
    if (field.number == 1) items.push_back(field.text());
  }
  return items;
}

bool is_plain(const AppendItem& item) {
  const Draft& draft = item.draft;
  if (!is_name(item.step) || !is_name(draft.tenant) || !is_name(draft.request_id)) return false;
  if (item.salt.size() != kHash || item.content_digest.size() != kHash) return false;
  if (draft.kind == 0 || draft.kind > kKinds || draft.phase == 0 || draft.phase > kPhases) return false;
  if (!is_hash(draft.input_commitment) || !is_hash(draft.output_commitment)) return false;
  if (!(draft.status.empty() || draft.status == "ok" || draft.status == "uncertain" || draft.status == "cancelled"))
    return false;
  if (draft.degraded.size() > kMaxDegraded || draft.steps.size() > kMaxSteps) return false;
  if (!draft.children.empty() || !draft.body_json.empty() || !is_text(draft.bundle)) return false;
  for (const std::string_view text : draft.degraded) {
    if (text.empty() || !is_text(text)) return false;
  }
  for (const Step& step : draft.steps) {
    if (!is_plain_step(step)) return false;
  }
  return draft.options_json.empty() || (draft.options_json.size() <= kMaxJson && is_plain_json(draft.options_json));
}

}  // namespace affidavit
