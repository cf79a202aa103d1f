#include "engine/checkpoint/generation_config.h"

#include <limits>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "engine/base/file.h"
#include "engine/base/request_limits.h"
#include "engine/checkpoint/json_fields.h"

namespace triptych {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

template <typename T>
std::optional<T> TakeNumber(JsonFields& fields, const std::string& field, const Range<T>& range) {
  if (!fields.Has(field)) return std::nullopt;
  const Json value = fields.Take(field, nullptr);
  const bool is_number = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
  // As doubles numbers that T has not are beyond every range.
  const double number = is_number ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (number >= range.low && number <= range.high && range.Contains(value.get<T>())) {
    return value.get<T>();
  }
  std::ostringstream allowed;
  allowed << "allowed: " << (std::is_integral_v<T> ? "an integer " : "a number ")
          << (range.above_low ? "above " : "from ") << range.low << " to " << range.high;
  fields.RefuseValue(field, value, allowed.str());
}

}  // namespace

GenerationConfig ParseGenerationConfig(std::string_view json, const std::string& source) {
  JsonFields fields(ParseJson(json, source), source);
  fields.DropNulls();
  GenerationConfig config;
  if (fields.Has("do_sample")) config.do_sample = fields.Bool("do_sample", false);
  config.temperature = TakeNumber(fields, "temperature", limits::kTemperature);
  config.top_k = TakeNumber(fields, "top_k", limits::kTopK);
  config.top_p = TakeNumber(fields, "top_p", limits::kTopP);
  config.min_p = TakeNumber(fields, "min_p", limits::kMinP);
  config.repetition_penalty = TakeNumber(fields, "repetition_penalty", limits::kRepetitionPenalty);
  return config;
}

GenerationConfig ReadGenerationConfig(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  return ParseGenerationConfig(ReadText(file, kMaxConfigBytes), file.string());
}

}  // namespace triptych
