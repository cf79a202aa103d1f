#include "server/http/output_form.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/request_limits.h"

namespace triptych::server {
namespace {

using Form = OutputForm::Kind;

void SetForm(Fields& fields, OutputForm form, std::optional<OutputForm>& known) {
  if (known) {
    return fields.Fail(InvalidArgument(
        form.field, "is set, but " + known->field + " is, too; allowed: one of them"));
  }
  known = std::move(form);
}

// Reads a schema. `path` is that of `fields`.
void ReadSchema(Fields& fields, const std::string& path, const std::string& name,
                std::string_view object, std::optional<OutputForm>& form) {
  const Json* const schema = fields.Any(name);
  if (schema == nullptr) return;
  if (!schema->is_object() && !schema->is_boolean() && !schema->is_string()) {
    return fields.Refuse(name, *schema, "a JSON Schema");
  }
  const std::string_view text = schema->is_string()
                                    ? std::string_view(schema->get_ref<const std::string&>())
                                    : MemberText(object, name);
  SetForm(fields, {.kind = Form::kJsonSchema, .text = text, .choices = {}, .field = path + name},
          form);
}

void ReadText(Fields& fields, const std::string& path, const std::string& name, Form kind,
              std::optional<OutputForm>& form) {
  const auto text = fields.String(name);
  if (!text) return;
  SetForm(fields, {.kind = kind, .text = *text, .choices = {}, .field = path + name}, form);
}

void ReadChoice(Fields& fields, const std::string& path, const std::string& name,
                std::optional<OutputForm>& form) {
  const Json* const list = fields.Any(name);
  if (list == nullptr) return;
  if (!list->is_array()) return fields.Refuse(name, *list, "an array of strings");
  OutputForm one{.kind = Form::kChoice, .text = {}, .choices = {}, .field = path + name};
  for (const Json& choice : *list) {
    if (one.choices.size() > limits::kOutputChoices.high) break;
    if (!choice.is_string()) {
      return fields.Refuse(name + "[" + std::to_string(one.choices.size()) + "]", choice,
                           "a string");
    }
    one.choices.push_back(choice.get<std::string>());
  }
  SetForm(fields, std::move(one), form);
}

void ReadJsonObject(Fields& fields, const std::string& path, const std::string& name,
                    std::optional<OutputForm>& form) {
  if (!fields.Bool(name).value_or(false)) return;
  SetForm(fields, {.kind = Form::kJsonObject, .text = {}, .choices = {}, .field = path + name},
          form);
}

// OpenAI's rule for the names of schemas.
bool IsSchemaName(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), fits);
}

// Reads {"name", "strict", "schema", "description"}. Every schema is kept strictly.
void ReadNamedSchema(Fields& fields, const std::string& path, std::string_view object,
                     std::optional<OutputForm>& form) {
  const auto name = fields.String("name");
  if (name && !IsSchemaName(*name)) {
    fields.Refuse("name", *name, "1 to 64 letters, digits, _ and -");
  }
  fields.Bool("strict");
  fields.String("description");
  if (fields.Need("schema", "a JSON Schema") == nullptr) return;
  ReadSchema(fields, path, "schema", object, form);
}

}  // namespace

void ReadResponseFormat(Fields& fields, const std::string& name, std::string_view object,
                        bool nested, std::optional<OutputForm>& form) {
  const Json* const format = fields.Any(name);
  if (format == nullptr) return;
  if (!format->is_object()) return fields.Refuse(name, *format, "an object");
  const std::string path = fields.PathOf(name) + ".";
  const std::string_view text = MemberText(object, name);
  Fields members(*format, path);
  const Json* const type = members.Need("type", "text, json_object, json_schema");
  if (type == nullptr || *type == "text") {
    // Any text.
  } else if (*type == "json_object") {
    if (members.Any("schema") != nullptr) {  // llama.cpp's
      ReadSchema(members, path, "schema", text, form);
    } else {
      SetForm(members,
              {.kind = Form::kJsonObject, .text = {}, .choices = {}, .field = path + "type"}, form);
    }
  } else if (*type != "json_schema") {
    members.Refuse("type", *type, "text, json_object, json_schema");
  } else if (!nested) {
    ReadNamedSchema(members, path, text, form);
  } else if (const Json* const named = members.Need("json_schema", "an object with a schema")) {
    if (!named->is_object()) {
      members.Refuse("json_schema", *named, "an object with a schema");
    } else {
      Fields inner(*named, path + "json_schema.");
      ReadNamedSchema(inner, path + "json_schema.", MemberText(text, "json_schema"), form);
      if (auto error = inner.Finish()) members.Fail(std::move(*error));
    }
  }
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
}

void ReadOllamaFormat(Fields& fields, std::string_view object, std::optional<OutputForm>& form) {
  const Json* const format = fields.Any("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    SetForm(fields, {.kind = Form::kJsonObject, .text = {}, .choices = {}, .field = "format"},
            form);
  } else if (format->is_object()) {
    ReadSchema(fields, "", "format", object, form);
  } else {
    fields.Refuse("format", *format, "\"json\" or a JSON Schema");
  }
}

void ReadForms(Fields& fields, std::string_view object, std::optional<OutputForm>& form) {
  ReadResponseFormat(fields, "response_format", object, /*nested=*/true, form);
  const auto read = [&](Fields& from, const std::string& path, const std::string& prefix,
                        std::string_view text) {
    ReadSchema(from, path, prefix + "json", text, form);
    ReadText(from, path, prefix + "regex", Form::kRegex, form);
    ReadChoice(from, path, prefix + "choice", form);
    ReadText(from, path, prefix + "grammar", Form::kGrammar, form);
    ReadJsonObject(from, path, prefix + "json_object", form);
  };
  read(fields, "", "guided_", object);
  fields.Ignore({"guided_decoding_backend"});
  ReadText(fields, "", "grammar", Form::kGrammar, form);
  ReadSchema(fields, "", "json_schema", object, form);
  const Json* const outputs = fields.Any("structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object()) return fields.Refuse("structured_outputs", *outputs, "an object");
  Fields members(*outputs, "structured_outputs.");
  read(members, "structured_outputs.", "", MemberText(object, "structured_outputs"));
  members.Bool("disable_fallback");  // there is nothing to fall back to
  for (const char* const name : {"disable_any_whitespace", "disable_additional_properties",
                                 "whitespace_pattern", "structural_tag"}) {
    members.Lack(name);
  }
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
}

bool AsksForForm(const std::string& body) {
  const Result<JsonBody> parsed = ParseBody(body);
  if (!parsed.ok()) return false;
  Fields fields(parsed.value().json);
  std::optional<OutputForm> form;
  ReadForms(fields, parsed.value().text, form);
  return form.has_value();
}

}  // namespace triptych::server
