// Fuzz target: values of the server's options.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/base/address.h"
#include "server/option_values.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

constexpr int64_t kMemoryBytes = int64_t{1} << 36;

// The value that `parse` returns; nothing if it fails with a one-line error.
template <typename Parse>
auto Parsed(const Parse& parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const std::invalid_argument& e) {
    Promise(*e.what() != '\0', "a refusal says something");
    return std::nullopt;
  }
}

}  // namespace

void FuzzOptionValues(std::string_view bytes) {
  const std::string text(bytes);
  if (const auto size = Parsed([&] { return server::ParseByteSize(text, kMemoryBytes); })) {
    Promise(*size >= 1, "a size is at least one byte");
  }
  if (const auto position = Parsed([&] { return server::ParseExpandFrom(text); })) {
    Promise(!*position || **position >= 0, "a position is not negative");
  }
  if (Parsed([&] { return server::CheckHostName(text), true; })) {
    Promise(text.find_first_of(":/@ ") == text.npos, "a host's name is nothing else");
  }
  const bool taken = Parsed([&] { return server::CheckAddress(text), true; }).has_value();
  const std::optional<Address> address = ParseAddress(text);
  Promise(taken == address.has_value(), "an address is taken if it is one");
  Promise(!address || (address->port >= 0 && address->port <= 65535), "a port is one");
  if (const auto model = Parsed([&] { return server::ParseModelOptions(text, kMemoryBytes); })) {
    const size_t name_bytes = model->name.size();
    Promise(name_bytes >= 1 && name_bytes <= server::kMaxModelNameBytes, "a model has a name");
    Promise(!model->kv_cache_bytes || *model->kv_cache_bytes >= 1, "a cache holds something");
  }
}

}  // namespace triptych
