// Tests of GPU limits and failures, which the emulated GPU has on demand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/model_backend.h"
#include "engine/base/error.h"
#include "tests/backend/cuda/cuda_test.h"
#include "tests/backend/cuda/emulation/emulation.h"
#include "tests/backend/cuda/model_checks.h"
#include "tests/backend/cuda/references.h"
#include "tests/backend/cuda/sequence_runner.h"

namespace triptych::emulated_device_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// GPUs of compute capability 8.6, 8.9 and 12.0 have 99 KiB of shared memory per thread block.
class SmallSharedMemoryTest : public CudaTest, public testing::WithParamInterface<const char*> {};

TEST_P(SmallSharedMemoryTest, LogitsAreCloseToFloat64) {
  const emulation::LimitsScope scope({.shared_bytes = 99 << 10});
  const Reference& reference = FindReference(GetParam());
  const std::unique_ptr<CudaModel> model = MakeModel(reference);
  ExpectLogitsCloseToFloat64(*model, {ShortSequencesOf(reference)[0]});
}

INSTANTIATE_TEST_SUITE_P(LatentModels, SmallSharedMemoryTest,
                         testing::Values("Mla512Heads32LowRank", "Mla512Heads16",
                                         "Mla256Premultiplied", "Mla256Long", "MlaExpands128"),
                         [](const auto& test) { return std::string(test.param); });

// With one multiprocessor every prompt takes the wide tiles, otherwise only long ones.
class PrefillTilingTest : public CudaTest, public testing::WithParamInterface<const char*> {};

TEST_P(PrefillTilingTest, TheNumberOfMultiprocessorsDoesNotChangeABit) {
  const Reference& reference = FindReference(GetParam());
  const auto logits = [&](int multiprocessors) {
    const emulation::LimitsScope scope({.multiprocessors = multiprocessors});
    const std::unique_ptr<CudaModel> model = MakeModel(reference);
    SequenceRunner runner(*model, {ShortSequencesOf(reference)[0]});
    runner.RunAlone({1000}, 1);
    return runner.logits();
  };
  EXPECT_EQ(logits(1), logits(132));
}

INSTANTIATE_TEST_SUITE_P(PromptKernels, PrefillTilingTest,
                         testing::Values("Gqa64", "Gqa64Windows", "Gqa128OddShare",
                                         "MlaExpands128"),
                         [](const auto& test) { return std::string(test.param); });

class EmulatedDeviceTest : public CudaTest {
 protected:
  static std::unique_ptr<ModelBackend> Load(const Reference& reference) {
    HeldCudaWeights weights = reference.weights;
    return MakeCudaModel(reference.config, weights, CudaOptions(reference.config, 20, 128), 0, {});
  }
};

TEST_F(EmulatedDeviceTest, AModelHoldsTheMemoryThatItReports) {
  for (const char* const name : {"MhaEveryBias", "Gqa64", "GqaNormedOutputs", "GqaWindowsAndCaps",
                                 "MlaLowRankQueries", "MlaExpands128"}) {
    const int64_t before = emulation::MemoryInUse();
    const std::unique_ptr<ModelBackend> model = Load(FindReference(name));
    const BackendInfo& info = model->info();
    EXPECT_EQ(
        emulation::MemoryInUse() - before,
        info.cache_bytes + info.device_memory->weight_bytes + info.device_memory->workspace_bytes)
        << name;
  }
}

TEST_F(EmulatedDeviceTest, AModelThatDoesNotFitIsRefusedAndLeavesNothing) {
  const Reference& reference = FindReference("MlaRanksBiasNorm");
  const int64_t before = emulation::MemoryInUse();
  int64_t needed = 0;
  {
    const std::unique_ptr<ModelBackend> model = Load(reference);
    needed = emulation::MemoryInUse() - before;
  }
  constexpr int kLimits = 8;
  for (int i = 0; i < kLimits; ++i) {
    const emulation::LimitsScope scope({.memory_bytes = before + needed * i / kLimits});
    EXPECT_THAT([&] { Load(reference); },
                ThrowsMessage<LoadError>(HasSubstr("not enough memory on cuda:0")));
    EXPECT_EQ(emulation::MemoryInUse(), before);
  }
}

TEST_F(EmulatedDeviceTest, AModelOnALostDeviceSaysSo) {
  const Reference& reference = FindReference("GqaLearned");
  const std::unique_ptr<CudaModel> model = MakeModel(reference);
  SequenceRunner runner(*model, reference.sequences);
  runner.Step({{0, 0, 5}});
  const emulation::LostDeviceScope scope;
  for (const int64_t count : {1, 3}) {
    EXPECT_THAT(
        [&] {
          runner.Step({{0, 5, count}});
        },
        ThrowsMessage<DeviceLost>(HasSubstr("cuda:0, Emulated GPU: CUDA: ")));
  }
}

}  // namespace
}  // namespace triptych::emulated_device_test
