// A checkpoint loaded and ready to serve.
#ifndef TRIPTYCH_ENGINE_HOSTING_HOSTED_MODEL_H_
#define TRIPTYCH_ENGINE_HOSTING_HOSTED_MODEL_H_

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/attention/latent_attention.h"
#include "engine/decoder/conversion.h"
#include "engine/model/config.h"
#include "engine/serving/engine.h"
#include "engine/text/tokenizer.h"

namespace triptych {

struct HostedModel {
  std::string name;
  ModelConfig config;                           // as it is served
  std::optional<AttentionKind> converted_from;  // the checkpoint's, if it was converted at load
  WeightFormat weight_format = WeightFormat::kFloat32;
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;            // in weight_format
  std::vector<ReducedForm> latent_forms;  // of each layer; empty unless MLA
  // The position of a prompt from which on MLA attends it by vanilla attention; absent if none is.
  std::optional<int64_t> vanilla_from;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

struct HostOptions {
  std::string name;
  std::filesystem::path directory;
  std::optional<WeightFormat> weight_format;  // of the weights; the checkpoint's own if absent
  std::optional<CacheFormat> cache_format;    // of the cache; the weights' if absent
  EngineOptions engine;                       // cache_format there is ignored
  std::optional<Conversion> conversion = {};  // as the checkpoint is, if absent
  at::Device device = at::kCPU;               // of weights and cache
  std::optional<int64_t> vanilla_from = {};   // as Decoder::PrepareToServe takes it
};

// "cpu", "cuda" or "cuda:N". Throws std::invalid_argument with one clear line if LibTorch has no
// such device.
at::Device ParseDevice(const std::string& name);

// Loads a checkpoint, and converts it if asked to. Throws LoadError.
HostedModel LoadHostedModel(const HostOptions& options);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_HOSTING_HOSTED_MODEL_H_
