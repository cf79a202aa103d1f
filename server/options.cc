#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "engine/attention/cost_model.h"

namespace triptych {
namespace {

// The default is the lesser of the two.
constexpr const char* kDefaultKvCacheBytes = "1GiB";
constexpr const char* kDefaultKvCacheShare = "25%";

// What the server holds beside the cache, at the least: measured with the three shipped models.
constexpr int64_t kServerBytes = int64_t{96} << 20;

// The value of an environment variable; empty if it is not set.
std::string Environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? "" : value;
}

// The environment variable that sets an option: TRIPTYCH_DRAIN_TIMEOUT for drain-timeout.
std::string VariableName(const std::string& option) {
  std::string name = "TRIPTYCH_" + option;
  std::replace(name.begin(), name.end(), '-', '_');
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

// The command line with a flag for every option that only the environment sets. CLI11's own reading
// of variables ignores bad values from version 2.4 on, and lets a config file go before them.
std::vector<std::string> WithEnvironment(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> added;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_envname().empty()) continue;
    const std::string flag = "--" + option->get_lnames().front();
    const std::string value = Environment(option->get_envname());
    const auto gives = [&](const std::string& argument) {
      return argument == flag || argument.compare(0, flag.size() + 1, flag + "=") == 0;
    };
    if (value.empty() || std::any_of(arguments.begin(), arguments.end(), gives)) continue;
    added.push_back(flag + "=" + value);
  }
  arguments.insert(arguments.begin(), added.begin(), added.end());
  return arguments;
}

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// Of the whole text.
std::optional<int64_t> ParseInteger(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "auto", "never" or a position, as Decoder::PrepareToServe takes it.
std::optional<int64_t> ParseVanillaFrom(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "never") return kNeverVanilla;
  const std::optional<int64_t> position = ParseInteger(text);
  if (!position || *position < 0) {
    throw std::invalid_argument("\"" + text +
                                "\" is not a position; allowed: auto, never, integers from 0 to " +
                                std::to_string(INT64_MAX));
  }
  return position;
}

// Throws unless it is HOST:PORT or [IPV6]:PORT. Others gRPC takes too, with a port nobody named.
void CheckAddress(const std::string& text) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  const std::string host = text.substr(0, colon);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  const auto port = ParseInteger(text.substr(std::min(colon + 1, text.size())));
  if (host.empty() || (host.find(':') != host.npos && !brackets) || !port || *port < 0 ||
      *port > 65535) {
    throw std::invalid_argument("\"" + text +
                                "\" is not an address; allowed: HOST:PORT, [IPV6]:PORT, with ports "
                                "from 0 to 65535");
  }
}

// The settings behind NAME=DIR: SETTING=VALUE[,SETTING=VALUE...].
void ParseSettings(const std::string& text, int64_t memory_bytes, ModelOptions* model) {
  const std::string of_model = " of model " + model->name;
  const auto refuse = [&](const std::string& key, const std::string& value,
                          const std::string& why) {
    throw std::invalid_argument(key + of_model + ": \"" + value + "\" " + why);
  };

  const std::set<std::string> keys = {"kv-cache-bytes", "attention", "rank", "groups"};
  std::map<std::string, std::string> values;
  for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    const std::string setting = text.substr(begin, end - begin);
    const size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    if (equals == std::string::npos || !keys.contains(key)) {
      throw std::invalid_argument("\"" + setting + "\"" + of_model +
                                  " is not a setting; allowed: kv-cache-bytes=SIZE, "
                                  "attention=KIND, rank=R, groups=G");
    }
    const std::string value = setting.substr(equals + 1);
    if (!values.emplace(key, value).second) refuse(key, value, "is a second value; allowed: one");
  }

  const auto size = values.find("kv-cache-bytes");
  if (size != values.end()) {
    try {
      model->kv_cache_bytes = ParseByteSize(size->second, memory_bytes);
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(size->first + of_model + ": " + e.what());
    }
  }

  Conversion conversion;
  const auto& kinds = Names<AttentionKind>();
  const auto attention = values.find("attention");
  if (attention != values.end()) {
    const auto kind = kinds.find(attention->second);
    if (kind == kinds.end()) {
      refuse("attention", attention->second, "is not a kind; allowed: mha, gqa, mla");
    }
    conversion.attention = kind->second;
  }
  // A number that only one kind has; 0 if it is not given.
  const auto parse_count = [&](const std::string& key, const std::string& kind) -> int64_t {
    const auto found = values.find(key);
    if (found == values.end()) return 0;
    const std::string& value = found->second;
    const std::optional<int64_t> count = ParseInteger(value);
    if (!count || *count < 1) {
      refuse(key, value,
             "is not a count; allowed: integers from 1 to " + std::to_string(INT64_MAX));
    }
    if (attention == values.end() || attention->second != kind) {
      refuse(key, value, "is allowed only with attention=" + kind);
    }
    return *count;
  };
  conversion.groups = parse_count("groups", "gqa");
  conversion.rank = parse_count("rank", "mla");
  if (attention == values.end()) return;
  if (conversion.attention == AttentionKind::kGqa && conversion.groups == 0) {
    refuse("attention", "gqa", "is allowed only with groups=G");
  }
  model->conversion = conversion;
}

// A flag's check in CLI11's form: empty if `parse` accepts the text.
template <typename Parse>
CLI::Validator Parses(const std::string& description, Parse parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        try {
          parse(text);
        } catch (const std::invalid_argument& e) {
          return std::string(e.what());
        }
        return std::string();
      },
      description);
}

}  // namespace

int64_t ParseByteSize(const std::string& text, int64_t memory_bytes) {
  const std::map<std::string, double> units = {{"", 1},
                                               {"B", 1},
                                               {"KiB", 0x1p10},
                                               {"MiB", 0x1p20},
                                               {"GiB", 0x1p30},
                                               {"TiB", 0x1p40},
                                               {"KB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"%", static_cast<double>(memory_bytes) / 100}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit = units.find(std::string(end, text.data() + text.size()));
  const double bytes = error == std::errc() && unit != units.end() ? number * unit->second : 0;
  if (!(bytes >= 1) || bytes > 0x1p62 || (unit->first == "%" && number > 100)) {
    throw std::invalid_argument(
        "\"" + text +
        "\" is not a size; allowed: bytes, a number with KiB, MiB, GiB, KB, "
        "MB or GB, or a percentage of memory such as 25%");
  }
  return static_cast<int64_t>(bytes);
}

ModelOptions ParseModelOptions(const std::string& text, int64_t memory_bytes) {
  const size_t equals = text.find('=');
  const size_t comma = text.find(',');
  ModelOptions model;
  if (equals == std::string::npos || equals > comma) {
    throw std::invalid_argument("\"" + text + "\" is not NAME=DIR[,SETTING=VALUE...]");
  }
  model.name = text.substr(0, equals);
  if (!IsModelName(model.name)) {
    throw std::invalid_argument("\"" + model.name +
                                "\" is not a model name; allowed: 1 to 64 letters, digits, '-', "
                                "'_' and '.'");
  }
  model.directory = text.substr(equals + 1, comma - equals - 1);
  if (!std::filesystem::is_directory(model.directory)) {
    throw std::invalid_argument("\"" + model.directory.string() + "\" of model " + model.name +
                                " is not a directory");
  }
  if (comma != std::string::npos) ParseSettings(text.substr(comma + 1), memory_bytes, &model);
  return model;
}

std::vector<int64_t> SplitKvCacheBytes(const ServerOptions& options) {
  int64_t rest = options.kv_cache_bytes;
  int64_t sharing = 0;
  for (const ModelOptions& model : options.models) {
    // Bounded, so that several huge ones do not overflow.
    rest = std::max<int64_t>(rest - model.kv_cache_bytes.value_or(0), -1);
    if (!model.kv_cache_bytes) ++sharing;
  }
  if (rest < sharing) {
    throw std::invalid_argument("--kv-cache-bytes " + std::to_string(options.kv_cache_bytes) +
                                " is less than the models' own kv-cache-bytes and a share for " +
                                std::to_string(sharing) + " others");
  }
  std::vector<int64_t> bytes;
  for (const ModelOptions& model : options.models) {
    bytes.push_back(model.kv_cache_bytes ? *model.kv_cache_bytes : rest / sharing);
  }
  return bytes;
}

std::optional<int> ParseServerOptions(int argc, const char* const* argv, ServerOptions* options,
                                      const Resources& available) {
  CLI::App app(
      "Serves decoders with MHA, GQA or reduced MLA over gRPC, and reports what each request's "
      "cache costs.",
      "triptych-server");
  app.footer(
      "Example:\n  triptych-server --model mla=models/shakespeare-mla --kv-cache-bytes 512MiB");
  CLI::Option* config =
      app.set_config("--config", "", "TOML file with options, named as here without the dashes")
          ->envname(VariableName("config"));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_formatter()->column_width(36);

  const auto add_count = [&](const std::string& flag, int64_t& value, int64_t max,
                             const std::string& help) {
    app.add_option(flag, value, help)->check(CLI::Range(int64_t{1}, max))->capture_default_str();
  };

  std::vector<std::string> models;
  app.add_option(
         "--model", models,
         "NAME=DIR[,SETTING=VALUE...]; may be given several times, or several with ';' between. "
         "Settings: kv-cache-bytes=SIZE, and to convert it when it is loaded attention=mha, "
         "attention=gqa,groups=G or attention=mla[,rank=R]")
      ->required()
      ->allow_extra_args(false)
      ->delimiter(';')
      ->check(Parses("NAME=DIR", [&](const std::string& text) {
        ParseModelOptions(text, available.memory_bytes);
      }));
  app.add_option("--listen", options->listen, "HOST:PORT; port 0 lets the system choose")
      ->check(Parses("HOST:PORT", CheckAddress))
      ->capture_default_str();
  const auto parse_size = [&](const std::string& text) {
    return ParseByteSize(text, available.memory_bytes);
  };
  std::string kv_cache_bytes = parse_size(kDefaultKvCacheShare) < parse_size(kDefaultKvCacheBytes)
                                   ? kDefaultKvCacheShare
                                   : kDefaultKvCacheBytes;
  app.add_option("--kv-cache-bytes", kv_cache_bytes,
                 "of all models together: bytes, 512MiB, 25% of memory (the host's, also with "
                 "--device cuda); split equally among models that name none of their own")
      ->check(Parses("SIZE", parse_size))
      ->capture_default_str();
  const auto add_format = [&]<typename Format>(const std::string& flag,
                                               std::optional<Format>& value,
                                               const std::string& help) {
    app.add_option_function<std::string>(
           flag, [&](const std::string& name) { value = Names<Format>().at(name); }, help)
        ->check(CLI::IsMember(Names<Format>()));
  };
  add_format("--dtype", options->weight_format, "of the weights [the checkpoint's]");
  add_format("--kv-dtype", options->cache_format, "of the cache [the weights']");
  app.add_option_function<std::string>(
         "--device", [&](const std::string& name) { options->device = ParseDevice(name); },
         "of weights, cache and compute: cpu, cuda or cuda:N [cpu]")
      ->check(Parses("DEVICE", ParseDevice));
  app.add_option_function<std::string>(
         "--vanilla-from",
         [&](const std::string& text) { options->vanilla_from = ParseVanillaFrom(text); },
         "MLA: position of a prompt from which on it is attended by vanilla attention; auto, where "
         "that pays, or never [auto]")
      ->check(Parses("POSITION", ParseVanillaFrom));
  add_count("--block-positions", options->engine.block_positions, 4096,
            "positions in one cache block");
  add_count("--max-batch-tokens", options->engine.max_batch_tokens, 1 << 20,
            "token rows computed in one step");
  add_count("--max-running", options->engine.max_running, 1 << 16,
            "sequences of one model that run at once");
  add_count("--max-waiting", options->engine.max_waiting, 1 << 20,
            "requests of one model that may queue");
  options->threads = std::clamp(available.cpus, 1, 1024);
  app.add_option("--threads", options->threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  double drain_seconds = 30;
  app.add_option("--drain-timeout", drain_seconds,
                 "seconds that live requests get to end after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("--log-level", options->log_level, "least severe level to log")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  std::string log_format = "text";
  app.add_option("--log-format", log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();

  for (CLI::Option* option : app.get_options()) {
    if (option->get_configurable()) option->envname(VariableName(option->get_lnames().front()));
  }

  const auto in_config = [&] { return "--config " + config->as<std::string>() + ": "; };
  const auto refuse = [](const std::string& error) {
    std::fprintf(stderr, "triptych-server: %s\n", error.c_str());
    return 2;
  };
  try {
    std::vector<std::string> arguments = WithEnvironment(app, argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(std::move(arguments));
    std::set<std::string> names;
    for (const std::string& text : models) {
      options->models.push_back(ParseModelOptions(text, available.memory_bytes));
      if (!names.insert(options->models.back().name).second) {
        throw CLI::ValidationError("--model", "names " + options->models.back().name + " twice");
      }
    }
    if (std::isnan(drain_seconds)) {  // which a range check lets pass
      throw CLI::ValidationError("--drain-timeout", "is not a number of seconds");
    }
    options->kv_cache_bytes = parse_size(kv_cache_bytes);
    if (options->kv_cache_bytes > available.memory_bytes - kServerBytes) {
      throw CLI::ValidationError(
          "--kv-cache-bytes",
          kv_cache_bytes + " (" + std::to_string(options->kv_cache_bytes) +
              " bytes) does not fit: there are " + std::to_string(available.memory_bytes) +
              " bytes of memory, of which the server itself needs " + std::to_string(kServerBytes));
    }
    try {
      SplitKvCacheBytes(*options);
    } catch (const std::invalid_argument& e) {
      throw CLI::ValidationError(e.what());
    }
    if (options->engine.max_running > options->engine.max_batch_tokens) {
      throw CLI::ValidationError("--max-running",
                                 std::to_string(options->engine.max_running) +
                                     " exceeds --max-batch-tokens " +
                                     std::to_string(options->engine.max_batch_tokens) +
                                     ", in which every running sequence needs a row");
    }
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::FileError&) {  // the only file that it reads
    return refuse(in_config() + "cannot be read");
  } catch (const CLI::ConfigError& e) {
    return refuse(in_config() + e.what() + "; allowed: options as in --help, without the dashes");
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  options->drain_timeout = std::chrono::milliseconds(std::llround(drain_seconds * 1000));
  options->log_format = log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  return std::nullopt;
}

}  // namespace triptych
