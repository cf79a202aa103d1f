#include "engine/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <string>

#include "engine/backend/cuda/cuda_model.h"
#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/load_cublaslt.h"
#include "engine/backend/cuda/matmul.h"
#include "engine/backend/cuda/row_kernels.h"
#include "engine/backend/cuda/workspace.h"
#include "engine/base/error.h"
#include "engine/base/quantities.h"

namespace triptych {
namespace {

using namespace cuda;  // NOLINT: this folder's own

// Kernels use asynchronous copies and bfloat16 tensor cores, which need compute capability 8.0.
constexpr int kLeastMajor = 8;

// Median of the seconds that `enqueue` takes on the stream, after a warm-up.
template <typename Enqueue>
double MeasureSeconds(cudaStream_t stream, const Enqueue& enqueue) {
  constexpr int kRuns = 9;
  const Event begin = MakeEvent(), end = MakeEvent();
  std::vector<double> seconds;
  for (int i = 0; i <= kRuns; ++i) {
    Check(cudaEventRecord(begin.get(), stream));
    enqueue();
    Check(cudaEventRecord(end.get(), stream));
    Check(cudaEventSynchronize(end.get()));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    if (i > 0) seconds.push_back(milliseconds / 1e3);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

CudaLimits Measure(int device) {
  Check(cudaSetDevice(device));
  const Stream stream = MakeStream();
  CudaLimits limits;
  {
    constexpr int64_t kBytes = int64_t{1} << 30;
    const DeviceArray<char> from(kBytes), to(kBytes);
    Check(cudaMemsetAsync(from.get(), 1, kBytes, stream.get()));
    limits.copy_bytes = 2.0 * kBytes / MeasureSeconds(stream.get(), [&] {
                          Check(cudaMemcpyAsync(to.get(), from.get(), kBytes,
                                                cudaMemcpyDeviceToDevice, stream.get()));
                        });
  }
  constexpr int64_t kSize = 8192;
  const DeviceArray<BFloat16> x(kSize * kSize), w(kSize * kSize), y(kSize * kSize);
  FillRandom(x.get(), x.size(), 1, 1, stream.get());
  FillRandom(w.get(), w.size(), 2, 1, stream.get());
  Matmuls matmuls(stream.get());
  const MatmulShape shape = Dense(kSize, kSize, MatmulOutput::kBFloat16);
  matmuls.Prepare(RowKind::kPrefill, shape, w.get());
  limits.bfloat16_flops = 2.0 * kSize * kSize * kSize / MeasureSeconds(stream.get(), [&] {
                            matmuls.Run(RowKind::kPrefill, shape, w.get(), x.get(), kSize, y.get());
                          });
  return limits;
}

// Returns use(). Errors of CUDA become LoadError.
template <typename Use>
auto OrLoadError(int device, const Use& use) {
  const std::string name = "cuda:" + std::to_string(device) + ": ";
  try {
    return use();
  } catch (const CudaError& e) {
    throw LoadError(name + e.what());
  } catch (const OutOfDeviceMemory&) {
    throw LoadError(name + "not enough memory");
  }
}

}  // namespace

std::string WhyNoCudaDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    return has_driver ? cudaGetErrorString(error) : "no CUDA driver";
  }
  if (!LoadCublasLt().empty()) return LoadCublasLt();
  return "no GPU of compute capability 8.0 or newer";
}

std::vector<CudaDevice> CudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  if (!LoadCublasLt().empty()) return {};
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      cudaGetLastError();
      break;
    }
    // Device numbers are CUDA's, so the list ends before the first GPU that is too old.
    if (properties.major < kLeastMajor) break;
    devices.push_back(
        {.name = properties.name, .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

int64_t FreeCudaBytes(int device) {
  return OrLoadError(device, [&] {
    size_t free = 0, total = 0;
    Check(cudaSetDevice(device));
    Check(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  });
}

CudaModelBytes CountCudaModelBytes(const ModelConfig& config, const BackendOptions& options) {
  CheckServedByCuda(config, options);
  const int64_t tokens = config.vocab_size * config.hidden_size;
  CudaModelBytes bytes{.weights = 2 * tokens * (config.tie_word_embeddings ? 1 : 2),
                       .workspace = SizeWorkspace(config, options).bytes()};
  bytes.weights += 4 * config.hidden_size * (config.norm_bias ? 2 : 1);
  const int64_t rotations = config.rope_local_base_freq > 0 ? 2 : 1;
  bytes.weights += 4 * config.max_position_embeddings * config.RotaryTableDim() * rotations;
  const bool added = config.position_embedding == PositionEmbedding::kLearned ||
                     config.position_embedding == PositionEmbedding::kSinusoidal;
  if (added) bytes.weights += 4 * config.max_position_embeddings * config.hidden_size;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    bytes.weights += DeviceBytes(LayerShapes(config, i));
    if (config.HasExperts(i)) {
      bytes.weights += config.experts.n_routed_experts * DeviceBytes(ExpertShapes(config));
    }
  }
  return bytes;
}

std::unique_ptr<ModelBackend> MakeCudaModel(const ModelConfig& config, CudaWeightSource& weights,
                                            const BackendOptions& options, int device,
                                            const std::function<void(int64_t)>& on_layer) {
  return OrLoadError(device, [&]() -> std::unique_ptr<ModelBackend> {
    try {
      return std::make_unique<CudaModel>(config, weights, options, device, on_layer);
    } catch (const OutOfDeviceMemory&) {
      const CudaModelBytes bytes = CountCudaModelBytes(config, options);
      throw LoadError("not enough memory on cuda:" + std::to_string(device) + " for weights of " +
                      FormatBytes(bytes.weights) + ", a KV cache of " +
                      FormatBytes(options.kv_cache_bytes) + " and a workspace of " +
                      FormatBytes(bytes.workspace));
    }
  });
}

CudaLimits MeasureCudaLimits(int device) {
  return OrLoadError(device, [&] { return Measure(device); });
}

}  // namespace triptych
