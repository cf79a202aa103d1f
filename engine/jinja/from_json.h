// Values of templates from JSON.
#ifndef TRIPTYCH_ENGINE_JINJA_FROM_JSON_H_
#define TRIPTYCH_ENGINE_JINJA_FROM_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/value.h"

namespace triptych::jinja {

// The value of a JSON document, whose texts have the source. Integers beyond 64 bits become floats.
// `Json` is nlohmann::json or nlohmann::ordered_json; the latter keeps the order of members.
template <typename Json>
Value FromJson(const Json& json, Source source) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Of(json.template get<bool>());
    case Json::value_t::number_integer:
      return Value::Of(json.template get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.template get<uint64_t>();
      return number > uint64_t{INT64_MAX} ? Value::Of(static_cast<double>(number))
                                          : Value::Of(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::Of(json.template get<double>());
    case Json::value_t::string:
      return Value::Of(json.template get_ref<const std::string&>(), source);
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(FromJson(item, source));
      return Value::Of(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<std::string, Value>> members;
      members.reserve(json.size());
      for (const auto& [name, member] : json.items()) {
        members.emplace_back(name, FromJson(member, source));
      }
      return Value::Of(std::move(members), source);
    }
    default:
      return Value::None();
  }
}

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_FROM_JSON_H_
