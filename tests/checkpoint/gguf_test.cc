#include "engine/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/gguf_file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::gguf_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0, kF16 = 1, kQ4K = 12, kQ8 = 8, kQ8K = 15, kBF16 = 30;

class GgufTest : public testing::Test {
 protected:
  const std::filesystem::path& Write(const std::string& bytes) const {
    WriteFile(path_, bytes);
    return path_;
  }
  std::string Refusal(const std::string& bytes) const {
    const std::string message =
        RefusalAfter<LoadError>(path_.string() + ": ", [&] { const GgufFile file(Write(bytes)); });
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
    return message;
  }
  std::string Refusal(const GgufBuilder& file) const { return Refusal(file.Bytes()); }

  const TempDir directory_;
  const std::filesystem::path path_ = directory_.path() / "m.gguf";
};

std::string DataOf(const TensorSource& source, const std::string& tensor) {
  std::string data(source.Find(tensor)->bytes, '\0');
  source.Read(tensor, std::as_writable_bytes(std::span(data)));
  return data;
}

// Every type of value, and of tensor.
GgufBuilder Good() {
  GgufBuilder file;
  file.Add("general.architecture", "llama")
      .Add("a.u8", GgufBuilder::kUint8, BytesOf(uint8_t{255}))
      .Add("a.i8", GgufBuilder::kInt8, BytesOf(int8_t{-1}))
      .Add("a.u16", GgufBuilder::kUint16, BytesOf(uint16_t{65535}))
      .Add("a.i16", GgufBuilder::kInt16, BytesOf(int16_t{-2}))
      .Add("a.u32", uint32_t{4294967295})
      .Add("a.i32", GgufBuilder::kInt32, BytesOf(int32_t{-3}))
      .Add("a.f32", 1e-5F)
      .AddBool("a.bool", true)
      .Add("a.u64", GgufBuilder::kUint64, BytesOf(~uint64_t{0}))
      .Add("a.i64", GgufBuilder::kInt64, BytesOf(int64_t{-4}))
      .Add("a.f64", GgufBuilder::kFloat64, BytesOf(0.1))
      .Add("a.texts", std::vector<std::string>{"x", "", "é"})
      .Add("a.none", std::vector<int32_t>{})
      .AddTensor("f32", kF32, {3, 2}, std::string("0123456789abcdefghijklmn"))
      .AddTensor("f16", kF16, {2}, "wxyz")
      .AddTensor("q8", kQ8, {64, 3}, std::string(6 * 34, 'q'))
      .AddTensor("bf16", kBF16, {1, 1, 2, 1}, "ABCD")
      .AddTensor("empty", kF32, {0}, "");
  return file;
}

TEST_F(GgufTest, ReadsMetadataAndTensors) {
  for (const uint32_t version : {2, 3}) {
    const GgufFile file(Write(Good().Bytes(version)));
    const Json expected = {{"general.architecture", "llama"},
                           {"a.u8", 255},
                           {"a.i8", -1},
                           {"a.u16", 65535},
                           {"a.i16", -2},
                           {"a.u32", 4294967295},
                           {"a.i32", -3},
                           {"a.f32", 1e-5},  // and not the double that is nearest to the float
                           {"a.bool", true},
                           {"a.u64", ~uint64_t{0}},
                           {"a.i64", -4},
                           {"a.f64", 0.1},
                           {"a.texts", {"x", "", "é"}},
                           {"a.none", Json::array()}};
    EXPECT_EQ(file.metadata(), expected);
    EXPECT_EQ(file.name(), path_.string());
    EXPECT_THAT(file.TensorNames(),
                testing::UnorderedElementsAre("f32", "f16", "q8", "bf16", "empty"));
    EXPECT_EQ(file.Find("none"), nullptr);
    EXPECT_EQ(file.Find("f32")->dtype, "F32");
    EXPECT_THAT(file.Find("f32")->shape, ElementsAre(2, 3));
    EXPECT_EQ(DataOf(file, "f32"), "0123456789abcdefghijklmn");
    EXPECT_EQ(file.Find("f16")->dtype, "F16");
    EXPECT_EQ(DataOf(file, "f16"), "wxyz");
    EXPECT_EQ(file.Find("q8")->dtype, "Q8_0");
    EXPECT_THAT(file.Find("q8")->shape, ElementsAre(3, 64));
    EXPECT_EQ(DataOf(file, "q8"), std::string(6 * 34, 'q'));
    EXPECT_EQ(file.Find("bf16")->dtype, "BF16");
    EXPECT_THAT(file.Find("bf16")->shape, ElementsAre(1, 2, 1, 1));
    EXPECT_EQ(DataOf(file, "bf16"), "ABCD");
    EXPECT_THAT(file.Find("empty")->shape, ElementsAre(0));
    std::vector<std::byte> other(5);
    EXPECT_THROW(file.Read("f16", other), std::out_of_range);
    EXPECT_THROW(file.Read("none", other), std::out_of_range);
  }
}

TEST_F(GgufTest, AlignmentIsTheFiles) {
  for (const uint32_t alignment : {1, 8, 64, 4096}) {
    GgufBuilder builder;
    builder.SetAlignment(alignment)
        .AddTensor("a", kF32, {1}, "abcd")
        .AddTensor("b", kF16, {1}, "xy");
    const GgufFile file(Write(builder.Bytes()));
    EXPECT_EQ(DataOf(file, "a"), "abcd");
    EXPECT_EQ(DataOf(file, "b"), "xy");
  }
  for (const uint32_t alignment : {0U, 3U, 1U << 21}) {
    EXPECT_THAT(Refusal(GgufBuilder().Add("general.alignment", alignment)),
                HasSubstr("general.alignment is " + std::to_string(alignment) +
                          "; allowed: a power of two up to 1048576"));
  }
  EXPECT_THAT(Refusal(GgufBuilder().Add("general.alignment", "32")),
              HasSubstr("general.alignment is \"32\""));
  EXPECT_THAT(Refusal(GgufBuilder().AddTensorAt("a", kF32, {0}, 16)),
              HasSubstr("tensor a is at offset 16; allowed: multiples of 32"));
}

TEST_F(GgufTest, RefusesWhatItIsNot) {
  EXPECT_EQ(Refusal(""), "does not begin with GGUF");
  EXPECT_EQ(Refusal("ggjt" + std::string(60, '\0')), "does not begin with GGUF");
  EXPECT_EQ(Refusal(Good().Bytes(1)), "is of version 1; supported: 2 and 3, little-endian");
  EXPECT_EQ(Refusal(Good().Bytes(4)), "is of version 4; supported: 2 and 3, little-endian");
  // Version 3 in a file of a big-endian machine.
  EXPECT_EQ(Refusal(Good().Bytes(0x03000000)),
            "is of version 50331648; supported: 2 and 3, little-endian");
  EXPECT_EQ(Refusal(Good().Add("split.count", uint32_t{2})),
            "split.count is 2; expected: a file name that ends in -00001-of-00002.gguf to "
            "-00002-of-00002.gguf");
  EXPECT_EQ(Refusal(Good().Add("split.count", uint32_t{1})), "accepted");
}

TEST_F(GgufTest, RefusesBrokenMetadata) {
  const auto of = [&](const GgufBuilder& file) { return Refusal(file); };
  EXPECT_EQ(of(GgufBuilder().Add("k", "a").Add("k", "a")), "k is there twice");
  EXPECT_EQ(of(GgufBuilder().Add("", "a")), "key 0 of its metadata is \"\"; allowed: UTF-8");
  EXPECT_THAT(of(GgufBuilder().Add("\xff", "a")), HasSubstr("is \"\\xff\"; allowed: UTF-8"));
  EXPECT_EQ(of(GgufBuilder().Add("k", "\xff")), "k is \"\\xff\"; allowed: UTF-8");
  EXPECT_EQ(of(GgufBuilder().Add("k", GgufBuilder::kBool, "\2")),
            "k is 2; allowed: 0 and 1, for a bool");
  EXPECT_EQ(of(GgufBuilder().Add("k", 13, "")),
            "k is of type 13; allowed: 0 to 12, and no lists in a list");
  EXPECT_EQ(of(GgufBuilder().AddList("k", GgufBuilder::kArray, 1, std::string(40, '\0'))),
            "k is of type 9; allowed: 0 to 12, and no lists in a list");
  EXPECT_EQ(of(GgufBuilder().AddList("k", 77, 1, std::string(40, '\0'))),
            "k is of type 77; allowed: 0 to 12, and no lists in a list");
  EXPECT_THAT(of(GgufBuilder().Add(std::string(70'000, 'k'), "a")),
              HasSubstr("key 0 of its metadata is 70000 bytes long; allowed: at most 65535"));
}

// Lengths that a file says and is not long enough for: nothing of the kind is made.
TEST_F(GgufTest, LengthsTakeNoMoreThanTheFile) {
  for (const uint64_t size : {uint64_t{100}, uint64_t{1} << 40, ~uint64_t{0}}) {
    GgufBuilder text;
    text.Add("k", GgufBuilder::kString, BytesOf(size));
    EXPECT_THAT(Refusal(text), AllOf(HasSubstr("k is"), HasSubstr("bytes long; allowed"))) << size;
    for (const uint32_t type : {GgufBuilder::kUint8, GgufBuilder::kString, GgufBuilder::kFloat64}) {
      GgufBuilder list;
      list.AddList("k", type, size, "");
      EXPECT_THAT(Refusal(list), HasSubstr("values is longer than the file")) << size << type;
    }
    const std::string keys = "GGUF" + BytesOf(uint32_t{3}) + BytesOf(uint64_t{0}) + BytesOf(size);
    EXPECT_THAT(Refusal(keys), HasSubstr("values is longer than the file")) << size;
    const std::string tensors =
        "GGUF" + BytesOf(uint32_t{3}) + BytesOf(size) + BytesOf(uint64_t{0});
    EXPECT_NE(Refusal(tensors), "accepted") << size;
  }
  GgufBuilder values;
  values.AddList("k", GgufBuilder::kUint8, 3 << 20, std::string(3 << 20, 'x'));
  EXPECT_EQ(Refusal(values), "its header has more than 2097152 values");
  GgufBuilder header;
  for (int i = 0; i < 70; ++i) {
    header.Add(std::to_string(i), GgufBuilder::kString,
               GgufBuilder::Text(std::string(1 << 20, 'x')));
  }
  EXPECT_EQ(Refusal(header), "its header is longer than 67108864 bytes");
}

TEST_F(GgufTest, RefusesBrokenTensors) {
  const std::string twelve(12, 'x');
  const auto of = [&](std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                      const std::string& data) {
    return Refusal(GgufBuilder().AddTensor(name, type, dims, data));
  };
  EXPECT_EQ(of("t", kF32, {3}, twelve), "accepted");
  const std::string supported =
      "; supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
      "IQ4_NL, IQ4_XS";
  EXPECT_EQ(of("t", kQ8K, {256}, std::string(292, 'x')), "tensor t is of type Q8_K" + supported);
  EXPECT_EQ(of("t", 31, {3}, twelve), "tensor t is of type number 31" + supported);
  EXPECT_EQ(of("t", 4'000'000'000, {3}, twelve),
            "tensor t is of type number 4000000000" + supported);
  EXPECT_EQ(of("t", kF32, {1, 1, 1, 1, 3}, twelve),
            "tensor t has 5 dimensions; allowed: at most 4");
  EXPECT_EQ(of("t", kQ8, {33}, std::string(68, 'x')),
            "tensor t has rows of 33; allowed for Q8_0: multiples of 32 that do not overflow");
  EXPECT_EQ(of("t", kQ4K, {128}, std::string(144, 'x')),
            "tensor t has rows of 128; allowed for Q4_K: multiples of 256 that do not overflow");
  EXPECT_THAT(of(std::string(65, 't'), kF32, {3}, twelve),
              HasSubstr("name of tensor 0 is 65 bytes long; allowed: at most 64"));
  for (const std::vector<uint64_t>& dims :
       std::vector<std::vector<uint64_t>>{{uint64_t{1} << 63},
                                          {uint64_t{1} << 32, uint64_t{1} << 32},
                                          {~uint64_t{0}},
                                          {0, uint64_t{1} << 62, uint64_t{1} << 62}}) {
    EXPECT_EQ(of("t", kF32, dims, twelve), "tensor t has a shape that overflows");
  }
  // 2^62 * 4 bytes wrap to 0.
  EXPECT_THAT(of("t", kF32, {uint64_t{1} << 62}, ""), HasSubstr("that do not overflow"));
  EXPECT_EQ(of("t", kF32, {9}, twelve),
            "tensor t is 36 bytes at offset 0; the file holds 32 bytes of data");
  EXPECT_EQ(Refusal(GgufBuilder().AddTensorAt("t", kF32, {3}, ~uint64_t{31})),
            "tensor t is 12 bytes at offset 18446744073709551584; the file holds 0 bytes of data");
  EXPECT_EQ(Refusal(GgufBuilder().AddTensor("s", kF32, {3}, twelve).AddTensorAt("t", kF32, {1}, 0)),
            "tensor s overlaps the one before it");
  EXPECT_EQ(Refusal(GgufBuilder()
                        .AddTensor("s", kF32, {9}, std::string(36, 'x'))
                        .AddTensorAt("t", kF32, {1}, 32)),
            "tensor t overlaps the one before it");
  EXPECT_EQ(
      Refusal(GgufBuilder().AddTensor("t", kF32, {3}, twelve).AddTensor("t", kF32, {3}, twelve)),
      "tensor t is there twice");
}

TEST_F(GgufTest, RefusesEveryTruncation) {
  GgufBuilder builder;
  builder.Add("general.architecture", "llama")
      .Add("a.list", std::vector<std::string>{"x", "yz"})
      .AddTensor("t", kF32, {8}, std::string(32, 'x'));
  const std::string file = builder.Bytes();
  ASSERT_EQ(Refusal(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(Refusal(file.substr(0, size)), "accepted") << size;
  }
}

// Whatever the bytes are, the file is refused or its tensors lie inside it.
TEST_F(GgufTest, RandomDamageNeverReadsOutside) {
  const std::string good = Good().Bytes();
  std::mt19937_64 generator(1);
  int accepted = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes = good;
    for (uint64_t flips = 1 + generator() % 4; flips > 0; --flips) {
      bytes[generator() % bytes.size()] ^= static_cast<char>(1 << generator() % 8);
    }
    if (generator() % 4 == 0) bytes.resize(generator() % bytes.size());
    try {
      const GgufFile file(Write(bytes));
      ++accepted;
      for (const std::string& name : file.TensorNames()) DataOf(file, name);
    } catch (const LoadError&) {
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(GgufTest, NumbersThatAreNotFiniteStayWhatTheyAre) {
  GgufBuilder builder;
  builder.Add("a", std::numeric_limits<float>::infinity()).Add("b", std::nanf(""));
  const GgufFile file(Write(builder.Bytes()));
  EXPECT_TRUE(std::isinf(file.metadata()["a"].get<double>()));
  EXPECT_TRUE(std::isnan(file.metadata()["b"].get<double>()));
}

TEST_F(GgufTest, AFileThatShrinksWhileItLoadsIsAnError) {
  const GgufFile file(Write(GgufBuilder().AddTensor("t", kF32, {8}, std::string(32, 'x')).Bytes()));
  std::filesystem::resize_file(path_, 80);
  std::vector<std::byte> bytes(32);
  EXPECT_THROW(file.Read("t", bytes), LoadError);
}

// A model of two files.
class GgufShardsTest : public testing::Test {
 protected:
  static GgufBuilder Shard(uint32_t index, uint32_t count = 2, uint32_t tensors = 3) {
    GgufBuilder file;
    file.Add("split.no", GgufBuilder::kUint16, BytesOf(static_cast<uint16_t>(index)))
        .Add("split.count", GgufBuilder::kUint16, BytesOf(static_cast<uint16_t>(count)))
        .Add("split.tensors.count", GgufBuilder::kInt32, BytesOf(tensors));
    return file;
  }
  static GgufBuilder First() {
    return Shard(0)
        .Add("general.architecture", "llama")
        .AddTensor("a", kF32, {1}, "abcd")
        .AddTensor("b", kF16, {1}, "xy");
  }
  static GgufBuilder Second() { return Shard(1).AddTensor("c", kF32, {1}, "efgh"); }

  std::filesystem::path PathOf(int number) const {
    return directory_.path() / ("m-0000" + std::to_string(number) + "-of-00002.gguf");
  }
  void Write(const GgufBuilder& first, const GgufBuilder& second) const {
    WriteFile(PathOf(1), first.Bytes());
    WriteFile(PathOf(2), second.Bytes());
  }
  // Behind the path of the file `number`.
  std::string Refusal(int number) const {
    return RefusalAfter<LoadError>(PathOf(number).string() + ": ",
                                   [&] { const GgufFile file(PathOf(1)); });
  }

  const TempDir directory_;
};

TEST_F(GgufShardsTest, AnyOfThemOpensAll) {
  Write(First(), Second());
  for (const int number : {1, 2}) {
    const GgufFile file(PathOf(number));
    EXPECT_EQ(file.name(), PathOf(1).string());
    EXPECT_THAT(file.files(), ElementsAre(PathOf(1), PathOf(2)));
    EXPECT_EQ(file.metadata().at("general.architecture"), "llama");
    EXPECT_THAT(file.TensorNames(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(DataOf(file, "a"), "abcd");
    EXPECT_EQ(DataOf(file, "b"), "xy");
    EXPECT_EQ(DataOf(file, "c"), "efgh");
  }
}

TEST_F(GgufShardsTest, RefusesFilesThatAreNoModelTogether) {
  WriteFile(PathOf(1), First().Bytes());
  EXPECT_EQ(Refusal(2), "is missing; " + PathOf(1).string() + " is one of 2 files of a model");
  Write(First(), Shard(0).AddTensor("c", kF32, {1}, "efgh"));
  EXPECT_EQ(Refusal(2), "split.no is 0; expected: 1");
  Write(First(), Shard(1, 3).AddTensor("c", kF32, {1}, "efgh"));
  EXPECT_EQ(Refusal(2), "split.count is 3; expected: 2");
  Write(First(), Shard(1, 2, 4).AddTensor("c", kF32, {1}, "efgh"));
  EXPECT_EQ(Refusal(2), "split.tensors.count is 4; expected: 3");
  Write(First(), GgufBuilder().AddTensor("c", kF32, {1}, "efgh"));
  EXPECT_EQ(Refusal(2), "split.no is missing; expected: 1");
  Write(First(), Shard(1).AddTensor("a", kF32, {1}, "efgh"));
  EXPECT_EQ(Refusal(2), "tensor a is in " + PathOf(1).string() + " too");
  Write(First(), Shard(1));
  EXPECT_EQ(Refusal(1), "split.tensors.count is 3; its 2 files hold 2");
  Write(First(), Second());
  std::filesystem::resize_file(PathOf(2), 40);
  EXPECT_NE(Refusal(2), "accepted");
}

TEST_F(GgufShardsTest, TheNumberOfFilesIsBounded) {
  WriteFile(PathOf(1), Shard(0, 65535).Bytes());
  EXPECT_EQ(Refusal(1), "split.count is 65535; allowed: an integer from 0 to 256");
  WriteFile(PathOf(1), GgufBuilder().Add("split.count", "2").Bytes());
  EXPECT_EQ(Refusal(1), "split.count is \"2\"; allowed: an integer from 0 to 256");
  WriteFile(PathOf(1), GgufBuilder().Add("split.count", GgufBuilder::kInt32, BytesOf(-1)).Bytes());
  EXPECT_EQ(Refusal(1), "split.count is -1; allowed: an integer from 0 to 256");
}

TEST(GgufPathTest, IsToldByTheName) {
  const TempDir directory;
  std::filesystem::create_directory(directory.path() / "d.gguf");
  EXPECT_TRUE(IsGgufFile("a/b.gguf"));
  EXPECT_FALSE(IsGgufFile("a/gguf"));
  EXPECT_FALSE(IsGgufFile("a/b.gguf.part"));
  EXPECT_FALSE(IsGgufFile(directory.path() / "d.gguf"));
}

}  // namespace
}  // namespace triptych::checkpoint::gguf_test
