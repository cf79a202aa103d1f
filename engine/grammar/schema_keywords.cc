#include "engine/grammar/schema_keywords.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "engine/base/quoted.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

const std::set<std::string> kTypes = {"array",  "boolean", "integer", "null",
                                      "number", "object",  "string"};
const std::set<std::string, std::less<>> kAnnotations = {
    "$comment",      "$defs",     "$schema",     "contentEncoding", "contentMediaType",
    "contentSchema", "default",   "definitions", "deprecated",      "description",
    "discriminator", "example",   "examples",    "externalDocs",    "readOnly",
    "title",         "writeOnly", "xml"};

bool IsNullable(const OrderedJson& schema) {
  return schema.contains("nullable") && schema["nullable"] == true;
}

void CheckNullable(const OrderedJson& schema, const std::string& path) {
  const OrderedJson& value = schema["nullable"];
  if (!value.is_boolean()) RefuseKeyword(path, "nullable", value, "true, false");
  if (value == true && !schema.contains("type")) {
    RefuseKeyword(path, "nullable", value, "true next to type, false");
  }
}

}  // namespace

const std::map<std::string, std::set<std::string>> kKeywordsOfTypes = {
    {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
      "minProperties", "maxProperties"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}}};

std::string TypeOf(const OrderedJson& value) {
  if (value.is_number()) return "number";
  return value.type_name();
}

void FailAt(const std::string& path, const std::string& what) { throw GrammarError(what, path); }

std::string PathOf(const std::string& path, const std::string& key) {
  return path + "." + Printable(key);
}

std::string PathOf(const std::string& path, const std::string& key, size_t index) {
  return PathOf(path, key) + "[" + std::to_string(index) + "]";
}

void RefuseKeyword(const std::string& path, const std::string& key, const OrderedJson& value,
                   const std::string& allowed) {
  FailAt(PathOf(path, key),
         "is " + Printable(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)) +
             "; allowed: " + allowed);
}

void CheckKeywords(const OrderedJson& schema, const std::string& path) {
  static const std::set<std::string> kOthers = {"$ref",  "allOf", "anyOf",    "oneOf",
                                                "const", "enum",  "nullable", "type"};
  for (const auto& [key, value] : schema.items()) {
    bool known = IsAnnotation(key) || kOthers.contains(key);
    for (const auto& [type, keywords] : kKeywordsOfTypes) known = known || keywords.contains(key);
    if (!known) FailAt(PathOf(path, key), "is not supported");
  }
  if (schema.contains("nullable")) CheckNullable(schema, path);
}

bool IsAnnotation(std::string_view key) {
  return kAnnotations.contains(key) || key.starts_with("x-");
}

OrderedJson WithNullAsType(const OrderedJson& schema) {
  if (!schema.contains("nullable")) return schema;
  CheckNullable(schema, "");
  OrderedJson typed = Without(schema, "nullable");
  if (!IsNullable(schema)) return typed;
  OrderedJson& type = typed["type"];
  if (!type.is_array()) type = OrderedJson::array({type});
  type.push_back("null");
  return typed;
}

OrderedJson Without(const OrderedJson& schema, const std::string& key) {
  OrderedJson rest = schema;
  rest.erase(key);
  return rest;
}

bool SaysNothing(const OrderedJson& schema) {
  return std::all_of(schema.items().begin(), schema.items().end(), [](const auto& item) {
    return IsAnnotation(item.key()) || (item.key() == "nullable" && item.value() == false);
  });
}

const OrderedJson& ListOf(const OrderedJson& schema, const std::string& key,
                          const std::string& path) {
  const OrderedJson& list = schema[key];
  if (!list.is_array() || list.empty()) RefuseKeyword(path, key, list, "an array, not empty");
  return list;
}

bool HasType(const std::set<std::string>& types, const OrderedJson& value) {
  if (types.contains(TypeOf(value))) return true;
  if (!types.contains("integer")) return false;
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

std::vector<OrderedJson> ConstantsOf(const OrderedJson& schema, const std::string& path) {
  std::vector<OrderedJson> values;
  if (schema.contains("enum")) {
    const OrderedJson& list = schema["enum"];
    if (!list.is_array()) RefuseKeyword(path, "enum", list, "an array");
    values.assign(list.begin(), list.end());
    if (schema.contains("const")) {
      std::erase_if(values, [&](const OrderedJson& one) { return one != schema["const"]; });
    }
  } else {
    values = {schema["const"]};
  }
  const std::set<std::string> types = TypesOf(schema, path);
  std::erase_if(values, [&](const OrderedJson& one) { return !HasType(types, one); });
  return values;
}

std::set<std::string> TypesOf(const OrderedJson& schema, const std::string& path) {
  if (!schema.contains("type")) {
    return {"array", "boolean", "null", "number", "object", "string"};
  }
  const OrderedJson& type = schema["type"];
  const OrderedJson list = type.is_array() ? type : OrderedJson::array({type});
  std::set<std::string> types;
  for (const OrderedJson& one : list) {
    if (!one.is_string() || !kTypes.contains(one.get<std::string>())) {
      RefuseKeyword(path, "type", type, "array, boolean, integer, null, number, object, string");
    }
    types.insert(one.get<std::string>());
  }
  if (IsNullable(schema)) types.insert("null");
  if (types.contains("number")) types.erase("integer");
  return types;
}

const OrderedJson& PropertyOf(const OrderedJson& schema, const std::string& name) {
  static const OrderedJson any = true;
  const auto properties = schema.find("properties");
  if (properties != schema.end() && properties->is_object()) {
    const auto own = properties->find(name);
    if (own != properties->end()) return *own;
  }
  const auto others = schema.find("additionalProperties");
  return others == schema.end() || schema.contains("patternProperties") ? any : *others;
}

std::set<std::string> RequiredOf(const OrderedJson& schema, const std::string& path) {
  std::set<std::string> names;
  if (!schema.contains("required")) return names;
  const OrderedJson& list = schema["required"];
  if (!list.is_array()) RefuseKeyword(path, "required", list, "an array of strings");
  for (const OrderedJson& name : list) {
    if (!name.is_string()) RefuseKeyword(path, "required", list, "an array of strings");
    names.insert(name.get<std::string>());
  }
  return names;
}

std::optional<int32_t> CountOf(const OrderedJson& schema, const std::string& key,
                               const std::string& path) {
  if (!schema.contains(key)) return std::nullopt;
  const OrderedJson& value = schema[key];
  const double count = value.is_number() ? value.get<double>() : -1;
  if (count < 0 || count != std::trunc(count)) {
    RefuseKeyword(path, key, value, "an integer, at least 0");
  }
  if (count > kMaxRepeats) {
    RefuseKeyword(path, key, value, "at most " + std::to_string(kMaxRepeats));
  }
  return static_cast<int32_t>(count);
}

std::string DecimalOf(const OrderedJson& schema, const std::string& key, const std::string& path) {
  const OrderedJson& value = schema[key];
  if (!value.is_number()) RefuseKeyword(path, key, value, "a number");
  if (value.is_number_integer()) return value.dump();
  const double number = value.get<double>();
  if (std::abs(number) > 1e30 || (number != 0 && std::abs(number) < 1e-30)) {
    RefuseKeyword(path, key, value, "0, or numbers between 1e-30 and 1e30");
  }
  char digits[128];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::fixed).ptr;
  return {digits, end};
}

}  // namespace triptych::grammar
