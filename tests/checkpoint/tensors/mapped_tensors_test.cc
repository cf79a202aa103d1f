#include "engine/checkpoint/tensors/mapped_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/base/error.h"
#include "tests/support/refusal.h"

namespace triptych::checkpoint::mapped_tensors_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Tensors in memory: each byte is its place in its tensor.
class CountingTensors final : public TensorSource {
 public:
  explicit CountingTensors(std::map<std::string, StoredTensor> tensors)
      : tensors_(std::move(tensors)) {}

  const std::string& name() const override { return name_; }
  std::vector<std::string> TensorNames() const override {
    std::vector<std::string> names;
    for (const auto& [name, stored] : tensors_) names.push_back(name);
    return names;
  }
  const StoredTensor* Find(const std::string& tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override {
    CheckPart(tensor, tensors_.at(tensor), begin, bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(begin + i);
    bytes_read_ += bytes.size();
  }
  size_t bytes_read() const { return bytes_read_; }

 private:
  std::string name_ = "file";
  std::map<std::string, StoredTensor> tensors_;
  mutable size_t bytes_read_ = 0;
};

MappedTensors Map(std::map<std::string, StoredTensor> tensors,
                  std::map<std::string, TensorOrigin> origins,
                  const std::vector<std::string>& left_out = {}) {
  return MappedTensors(std::make_unique<CountingTensors>(std::move(tensors)), std::move(origins),
                       left_out);
}

std::vector<int> Numbers(const TensorSource& source, const std::string& tensor) {
  std::vector<std::byte> bytes(source.Find(tensor)->bytes);
  source.Read(tensor, bytes);
  std::vector<int> numbers;
  for (const std::byte byte : bytes) numbers.push_back(std::to_integer<int>(byte));
  return numbers;
}

TEST(MappedTensorsTest, NamesThatAreNotMappedStay) {
  const MappedTensors tensors =
      Map({{"a", {"U8", {2}, 2}}, {"b", {"U8", {3}, 3}}, {"mask", {"U8", {9}, 9}}},
          {{"new", {.tensor = "a"}}}, {"mask", "none"});
  EXPECT_EQ(tensors.name(), "file");
  EXPECT_THAT(tensors.TensorNames(), UnorderedElementsAre("new", "b"));
  EXPECT_EQ(tensors.Find("a"), nullptr);
  EXPECT_EQ(tensors.Find("mask"), nullptr);
  EXPECT_THAT(Numbers(tensors, "new"), ElementsAre(0, 1));
  EXPECT_THAT(Numbers(tensors, "b"), ElementsAre(0, 1, 2));
  std::vector<std::byte> other(5);
  EXPECT_THROW(tensors.Read("new", other), std::out_of_range);
  EXPECT_THROW(tensors.Read("a", other), std::out_of_range);
}

TEST(MappedTensorsTest, RowsAreCutOut) {
  // Two bytes to an element.
  const MappedTensors tensors = Map({{"w", {"F16", {3, 2}, 12}}, {"v", {"F16", {3}, 6}}},
                                    {{"first", {.tensor = "w", .first_row = 0, .rows = 1}},
                                     {"rest", {.tensor = "w", .first_row = 1, .rows = 2}},
                                     {"last", {.tensor = "v", .first_row = 2, .rows = 1}}});
  EXPECT_THAT(tensors.TensorNames(), UnorderedElementsAre("first", "rest", "last"));
  EXPECT_EQ(tensors.Find("rest")->dtype, "F16");
  EXPECT_THAT(tensors.Find("rest")->shape, ElementsAre(2, 2));
  EXPECT_THAT(Numbers(tensors, "first"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Numbers(tensors, "rest"), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(tensors.Find("last")->shape, ElementsAre(1));
  EXPECT_THAT(Numbers(tensors, "last"), ElementsAre(4, 5));
}

TEST(MappedTensorsTest, MatricesAreTransposed) {
  const MappedTensors tensors =
      Map({{"w", {"F16", {2, 3}, 12}}},
          {{"all", {.tensor = "w", .transposed = true}},
           {"middle", {.tensor = "w", .transposed = true, .first_row = 1, .rows = 1}}});
  EXPECT_THAT(tensors.Find("all")->shape, ElementsAre(3, 2));
  EXPECT_THAT(Numbers(tensors, "all"), ElementsAre(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11));
  EXPECT_THAT(tensors.Find("middle")->shape, ElementsAre(1, 2));
  EXPECT_THAT(Numbers(tensors, "middle"), ElementsAre(2, 3, 8, 9));
}

// Wider and higher than what is turned at a time.
TEST(MappedTensorsTest, LargeMatricesAreTransposed) {
  const int64_t rows = 130, columns = 65;
  const MappedTensors tensors =
      Map({{"w", {"U8", {rows, columns}, 130 * 65}}}, {{"t", {.tensor = "w", .transposed = true}}});
  const std::vector<int> turned = Numbers(tensors, "t");
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      ASSERT_EQ(turned[j * rows + i], (i * columns + j) % 256) << i << " " << j;
    }
  }
}

TEST(MappedTensorsTest, TensorsThatTheOriginLacksAreAbsent) {
  const std::map<std::string, StoredTensor> stored = {{"w", {"U8", {3, 2}, 6}},
                                                      {"scalar", {"U8", {}, 1}},
                                                      {"none", {"U8", {0, 4}, 0}},
                                                      {"flat", {"U8", {3, 0}, 0}}};
  for (const TensorOrigin& origin :
       std::vector<TensorOrigin>{{.tensor = "absent"},
                                 {.tensor = "w", .first_row = 0, .rows = 4},
                                 {.tensor = "w", .first_row = 3, .rows = 1},
                                 {.tensor = "w", .first_row = -1, .rows = 1},
                                 {.tensor = "w", .first_row = 0, .rows = 0},
                                 {.tensor = "w", .first_row = 0, .rows = -1},
                                 {.tensor = "w", .first_row = 1, .rows = INT64_MAX},
                                 {.tensor = "w", .transposed = true, .first_row = 0, .rows = 3},
                                 {.tensor = "scalar", .first_row = 0, .rows = 1},
                                 {.tensor = "scalar", .transposed = true},
                                 {.tensor = "none", .first_row = 0, .rows = 1},
                                 {.tensor = "none", .transposed = true},
                                 {.tensor = "flat", .first_row = 0, .rows = 1}}) {
    const MappedTensors tensors = Map(stored, {{"new", origin}});
    EXPECT_EQ(tensors.Find("new"), nullptr) << origin.tensor << origin.rows.value_or(-2);
    // Nothing else is hidden by it.
    EXPECT_THAT(tensors.TensorNames(), UnorderedElementsAre("w", "scalar", "none", "flat"));
  }
  const MappedTensors tensors = Map(stored, {{"empty", {.tensor = "none"}}});
  EXPECT_THAT(tensors.Find("empty")->shape, ElementsAre(0, 4));
  EXPECT_THAT(Numbers(tensors, "empty"), IsEmpty());
}

// A sparse file may say that there are a billion rows: they are not read to find three.
TEST(MappedTensorsTest, AnOriginOfOtherRowsIsRefused) {
  const auto refusal = [](std::vector<int64_t> shape, bool transposed) -> std::string {
    const auto bytes = static_cast<uint64_t>(shape.front() * shape.back());
    return RefusalOf<LoadError>([&] {
      Map({{"qkv", {"U8", std::move(shape), bytes}}},
          {{"q", {"qkv", transposed, /*first_row=*/0, /*rows=*/1, /*of_rows=*/3}}});
    });
  };
  EXPECT_EQ(refusal({3, 2}, false), "accepted");
  EXPECT_EQ(refusal({2, 3}, true), "accepted");
  EXPECT_EQ(refusal({1'000'000'000, 2}, false),
            "file: tensor qkv has shape [1000000000, 2]; the config needs [3, 2]");
  EXPECT_EQ(refusal({2, 1'000'000'000}, true),
            "file: tensor qkv has shape [2, 1000000000]; the config needs [2, 3]");
  EXPECT_EQ(refusal({2, 2}, false), "file: tensor qkv has shape [2, 2]; the config needs [3, 2]");
}

// Rows of blocks are whole ones or not there.
TEST(MappedTensorsTest, RowsOfBlocks) {
  const MappedTensors tensors = Map({{"w", {"Q8_0", {4, 32}, 4 * 34}}, {"v", {"Q8_0", {32}, 34}}},
                                    {{"half", {.tensor = "w", .first_row = 2, .rows = 2}},
                                     {"part", {.tensor = "v", .first_row = 0, .rows = 16}},
                                     {"turned", {.tensor = "w", .transposed = true}}});
  EXPECT_THAT(tensors.TensorNames(), UnorderedElementsAre("half", "v"));
  std::vector<int> expected(2 * 34);
  std::iota(expected.begin(), expected.end(), 2 * 34);
  EXPECT_EQ(Numbers(tensors, "half"), expected);
}

// Joined experts: only the rows of one of them are read.
TEST(MappedTensorsTest, MatricesAndTheirRowsAreCutOut) {
  auto source = std::make_shared<const CountingTensors>(
      std::map<std::string, StoredTensor>{{"w", {"F16", {3, 2, 4}, 48}}});
  const MappedTensors tensors(
      source,
      {{"last", {.tensor = "w", .matrix = 2, .of_matrices = 3}},
       {"row",
        {.tensor = "w", .first_row = 1, .rows = 1, .of_rows = 2, .matrix = 1, .of_matrices = 3}},
       {"turned", {.tensor = "w", .transposed = true, .matrix = 1, .of_matrices = 3}}});
  EXPECT_THAT(tensors.TensorNames(), UnorderedElementsAre("last", "row", "turned"));
  EXPECT_THAT(tensors.Find("last")->shape, ElementsAre(2, 4));
  EXPECT_EQ(tensors.Find("last")->bytes, 16u);
  EXPECT_THAT(Numbers(tensors, "row"), ElementsAre(24, 25, 26, 27, 28, 29, 30, 31));
  EXPECT_EQ(source->bytes_read(), 8u);
  std::vector<int> matrix(16);
  std::iota(matrix.begin(), matrix.end(), 32);
  EXPECT_EQ(Numbers(tensors, "last"), matrix);
  EXPECT_EQ(source->bytes_read(), 24u);
  EXPECT_THAT(tensors.Find("turned")->shape, ElementsAre(4, 2));
  EXPECT_THAT(Numbers(tensors, "turned"),
              ElementsAre(16, 17, 24, 25, 18, 19, 26, 27, 20, 21, 28, 29, 22, 23, 30, 31));
}

TEST(MappedTensorsTest, AnOriginOfOtherMatricesIsRefused) {
  const auto refusal = [](std::vector<int64_t> shape) -> std::string {
    const auto bytes = static_cast<uint64_t>(shape.front() * shape.back() * 2);
    return RefusalOf<LoadError>([&] {
      Map({{"w", {"U8", std::move(shape), bytes}}},
          {{"x", {.tensor = "w", .of_rows = 2, .matrix = 1, .of_matrices = 3}}});
    });
  };
  EXPECT_EQ(refusal({3, 2, 4}), "accepted");
  EXPECT_EQ(refusal({1'000'000'000, 2, 4}),
            "file: tensor w has shape [1000000000, 2, 4]; the config needs [3, 2, 4]");
  EXPECT_EQ(refusal({3, 1, 4}), "file: tensor w has shape [3, 1, 4]; the config needs [3, 2, 4]");
  EXPECT_EQ(refusal({2, 3}), "file: tensor w has shape [2, 3]; the config needs [3, 2]");
}

TEST(MappedTensorsTest, PartsAreReadAlone) {
  const MappedTensors tensors =
      Map({{"w", {"U8", {3, 4}, 12}}}, {{"rows", {.tensor = "w", .first_row = 1, .rows = 2}}});
  std::vector<std::byte> part(3);
  tensors.ReadPart("rows", 2, part);
  EXPECT_THAT(part, ElementsAre(std::byte{6}, std::byte{7}, std::byte{8}));
  EXPECT_THROW(tensors.ReadPart("rows", 6, part), std::out_of_range);
  EXPECT_THROW(tensors.ReadPart("rows", UINT64_MAX, part), std::out_of_range);
}

TEST(MappedTensorsTest, OneIsAddedInFloat32) {
  const std::map<std::string, TensorOrigin> origins = {{"sum", {.tensor = "w", .plus_one = true}}};
  const auto sums = [&](const char* dtype, uint64_t bytes) {
    const MappedTensors tensors = Map({{"w", {dtype, {2}, bytes}}}, origins);
    EXPECT_EQ(tensors.Find("sum")->dtype, "F32");
    EXPECT_EQ(tensors.Find("sum")->bytes, 8);
    std::vector<float> read(2);
    tensors.Read("sum", std::as_writable_bytes(std::span(read)));
    return read;
  };
  // The bytes are 0, 1, 2, ...; these numbers are so small that 1 remains.
  EXPECT_THAT(sums("F32", 8), ElementsAre(1, 1));
  EXPECT_THAT(sums("BF16", 4), ElementsAre(1, 1));
  // 0x0100 and 0x0302
  EXPECT_THAT(sums("F16", 4), ElementsAre(1 + 0x1p-16F, 1 + 0x302p-24F));
  EXPECT_EQ(RefusalOf<LoadError>([&] {
              Map({{"w", {"U8", {2}, 2}}}, origins);
            }),
            "file: tensor w has dtype U8; allowed: F32, BF16, F16");
}

TEST(MappedTensorsTest, ANameMayBeMappedToWhatAnotherHad) {
  const MappedTensors tensors = Map({{"a", {"U8", {1}, 1}}, {"b", {"U8", {2}, 2}}},
                                    {{"a", {.tensor = "b"}}, {"b", {.tensor = "a"}}});
  EXPECT_EQ(tensors.Find("a")->bytes, 2u);
  EXPECT_EQ(tensors.Find("b")->bytes, 1u);
}

}  // namespace
}  // namespace triptych::checkpoint::mapped_tensors_test
