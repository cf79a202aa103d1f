#include "engine/checkpoint/tensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::safetensors_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// A file with this header and as much data.
std::string File(std::string_view header, size_t data_bytes) {
  return LittleEndian(header.size()) + std::string(header) + std::string(data_bytes, 'x');
}

// Reads the header of a file whose bytes are `file`.
std::map<std::string, SafetensorsEntry> ReadEntries(const std::string& file,
                                                    const std::string& source) {
  const auto read = [&](uint64_t offset, std::span<std::byte> bytes) {
    ASSERT_LE(offset + bytes.size(), file.size());
    std::memcpy(bytes.data(), file.data() + offset, bytes.size());
  };
  return ReadSafetensorsHeader(file.size(), read, source).entries;
}

std::string Refusal(const std::string& file) {
  return RefusalOf<LoadError>([&] { ReadEntries(file, "dir/model.safetensors"); });
}

// Two tensors, 24 and 4 bytes.
constexpr std::string_view kGood = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                   R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}})";

TEST(SafetensorsTest, ReadsAGoodHeader) {
  const std::string file = File(kGood, 28);
  const auto entries = ReadEntries(file, "f");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries.at("a").dtype, "F32");
  EXPECT_THAT(entries.at("a").shape, ElementsAre(2, 3));
  EXPECT_EQ(entries.at("a").begin, 0u);
  EXPECT_EQ(entries.at("a").end, 24u);
  EXPECT_EQ(entries.at("b").dtype, "BF16");
  EXPECT_EQ(entries.at("b").begin, 24u);
}

TEST(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  // Metadata, padding after the JSON, any order, scalars, empty tensors, no tensors.
  for (const auto& [header, bytes] : std::vector<std::pair<std::string, size_t>>{
           {R"({"__metadata__":{"format":"pt"}})", 0},
           {"{}", 0},
           {"{}      ", 0},
           {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
            R"("a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})",
            5},
           {R"({"scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8},
           {R"({"none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
            R"("one":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})",
            1}}) {
    EXPECT_EQ(Refusal(File(header, bytes)), "accepted") << header;
  }
}

struct Damage {
  std::string what;
  std::string header;
  size_t data_bytes;
  std::vector<std::string> said;
};
void PrintTo(const Damage& damage, std::ostream* os) { *os << damage.what; }

std::string Tensor(std::string_view fields) { return R"({"t":{)" + std::string(fields) + "}}"; }

class SafetensorsDamageTest : public testing::TestWithParam<Damage> {};

TEST_P(SafetensorsDamageTest, IsRefusedNamingFileAndTensor) {
  const std::string refusal = Refusal(File(GetParam().header, GetParam().data_bytes));
  EXPECT_THAT(refusal, HasSubstr("dir/model.safetensors"));
  for (const std::string& part : GetParam().said) EXPECT_THAT(refusal, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsDamageTest,
    testing::Values(
        Damage{"NotJson", "{", 0, {"JSON"}}, Damage{"Empty", "", 0, {"JSON"}},
        Damage{"TrailingText", "{} x", 0, {"JSON"}}, Damage{"AnArray", "[]", 0, {"JSON object"}},
        Damage{"BadUtf8", "{\"\xff\":1}", 0, {"JSON"}},
        Damage{"NumberTooLarge",
               Tensor(R"("dtype":"U8","shape":[1e999],"data_offsets":[0,0])"),
               0,
               {"JSON"}},
        Damage{"TensorIsANumber", R"({"t":7})", 0, {"tensor t", "object"}},
        Damage{"TensorIsNull", R"({"t":null})", 0, {"tensor t", "object"}},
        Damage{"NoDtype",
               Tensor(R"("shape":[1],"data_offsets":[0,4])"),
               4,
               {"tensor t", "dtype is missing"}},
        Damage{"NoShape",
               Tensor(R"("dtype":"F32","data_offsets":[0,4])"),
               4,
               {"tensor t", "shape is missing"}},
        Damage{"NoOffsets",
               Tensor(R"("dtype":"F32","shape":[1])"),
               4,
               {"tensor t", "data_offsets is missing"}},
        Damage{"UnknownDtype",
               Tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"),
               4,
               {"tensor t", "F31"}},
        Damage{"DtypeIsANumber",
               Tensor(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"),
               4,
               {"tensor t", "dtype 32"}},
        Damage{"ShapeIsANumber",
               Tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"),
               4,
               {"tensor t", "shape 1"}},
        Damage{"NegativeShape",
               Tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
               4,
               {"tensor t", "[-1]"}},
        Damage{"FractionalShape",
               Tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
               4,
               {"tensor t", "[1.0]"}},
        // 2^62 * 4 bytes wrap to 0; 2^32 * 2^32 wraps to 0; 2^63 is no int64.
        Damage{"OverflowBytes",
               Tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
               0,
               {"tensor t", "overflows"}},
        Damage{"OverflowProduct",
               Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
               0,
               {"tensor t", "overflows"}},
        Damage{"OverflowExtent",
               Tensor(R"("dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0])"),
               0,
               {"tensor t", "overflows"}},
        Damage{"OneOffset",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"),
               4,
               {"tensor t", "data_offsets"}},
        Damage{"ThreeOffsets",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"),
               4,
               {"tensor t", "data_offsets"}},
        Damage{"NegativeOffset",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"),
               4,
               {"tensor t", "data_offsets"}},
        Damage{"OffsetsBackwards",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
               4,
               {"tensor t", "outside"}},
        Damage{"BeyondTheData",
               Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"),
               4,
               {"tensor t", "outside", "4 bytes"}},
        Damage{"FarBeyond",
               Tensor(R"("dtype":"U8","shape":[1],)"
                      R"("data_offsets":[18446744073709551614,18446744073709551615])"),
               4,
               {"tensor t", "outside"}},
        Damage{"SpanTooLong",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"),
               8,
               {"tensor t", "[1]", "4"}},
        Damage{"SpanTooShort",
               Tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
               8,
               {"tensor t", "[3]", "12"}},
        Damage{"GapAtTheStart",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
               8,
               {"tensor t", "gap", "4 bytes"}},
        Damage{"GapAtTheEnd",
               Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"),
               7,
               {"3 bytes after"}},
        Damage{"DataWithoutTensors", "{}", 1, {"1 bytes after"}},
        Damage{"Gap",
               R"({"s":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("t":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
               5,
               {"tensor t", "gap"}},
        Damage{"Overlap",
               R"({"s":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
               R"("t":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
               5,
               {"tensor t", "overlaps"}},
        Damage{"SameBytesTwice",
               R"({"s":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
               R"("t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
               3,
               {"tensor t", "overlaps"}},
        Damage{"TensorTwice",
               R"({"t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
               R"("t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
               3,
               {"\"t\" twice"}},
        Damage{"FieldTwice",
               Tensor(R"("dtype":"U8","shape":[3],"shape":[3],"data_offsets":[0,3])"),
               3,
               {"\"shape\" twice"}}),
    testing::PrintToStringParamName());

TEST(SafetensorsTest, RefusesWrongHeaderSizes) {
  const std::string body = std::string(kGood) + std::string(28, 'x');
  for (const uint64_t size : {kGood.size() + 29, uint64_t{100'000'001}, uint64_t{1} << 63,
                              ~uint64_t{0}, ~uint64_t{0} - 7}) {
    EXPECT_THAT(Refusal(LittleEndian(size) + body),
                AllOf(HasSubstr("dir/model.safetensors"), HasSubstr(std::to_string(size))));
  }
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, kGood.size() - 1, kGood.size() + 1}) {
    EXPECT_THAT(Refusal(LittleEndian(size) + body), HasSubstr("JSON"));
  }
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = File(kGood, 28);
  ASSERT_EQ(Refusal(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(Refusal(file.substr(0, size)), HasSubstr("dir/model.safetensors")) << size;
  }
}

// Deep enough to exhaust the stack of anything that recurses.
TEST(SafetensorsTest, DeepNestingIsRefused) {
  const std::string open(300'000, '['), closed = open + std::string(open.size(), ']');
  EXPECT_THAT(Refusal(File(open, 0)), HasSubstr("dir/model.safetensors"));
  EXPECT_THAT(Refusal(File(closed, 0)), HasSubstr("nested too deeply"));
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    nlohmann::json fields = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}};
    fields[field] = "HERE";
    std::string header = nlohmann::json{{"t", fields}}.dump();
    header.replace(header.find("\"HERE\""), 6, closed);
    EXPECT_THAT(Refusal(File(header, 4)), HasSubstr("nested too deeply")) << field;
  }
}

// Whatever the bytes are, the file is refused or its tensors lie inside it.
TEST(SafetensorsTest, RandomDamageNeverReadsOutside) {
  const std::string good = File(kGood, 28);
  std::mt19937_64 generator(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    for (uint64_t flips = 1 + generator() % 4; flips > 0; --flips) {
      file[generator() % file.size()] ^= static_cast<char>(1 << generator() % 8);
    }
    if (generator() % 4 == 0) file.resize(generator() % file.size());
    try {
      const auto entries = ReadEntries(file, "f");
      ++accepted;
      for (const auto& [name, entry] : entries) {
        ASSERT_LE(entry.begin, entry.end);
        ASSERT_LE(entry.end, file.size());
      }
    } catch (const LoadError&) {
    }
  }
  EXPECT_GT(accepted, 0);  // flips in the data, or in a name, do no harm
}

TEST(SafetensorsTest, WritesWhatItReads) {
  const TempDir directory;
  const std::filesystem::path path = directory.path() / "t.safetensors";
  const std::string first = "0123456789ab", second = "xy";
  WriteSafetensors(path,
                   {{"second/first", "F32", {3}, Bytes(first)},
                    {"a \"quoted\" name", "BF16", {1, 1}, Bytes(second)},
                    {"empty", "F32", {0, 4}, {}}},
                   {{"format", "pt"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 3u);
  const auto text = [&](const std::string& name) {
    std::string bytes(file.Find(name)->bytes, '\0');
    file.Read(name, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  };
  EXPECT_EQ(text("second/first"), first);
  EXPECT_EQ(text("a \"quoted\" name"), second);
  EXPECT_EQ(text("empty"), "");
  EXPECT_THAT(file.entries().at("empty").shape, ElementsAre(0, 4));
  // The data is aligned, and nothing is left beside the file.
  uint64_t header = 0;
  std::memcpy(&header, ReadFile(path).data(), sizeof(header));
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(SafetensorsTest, RefusesWhatIsNoFile) {
  const TempDir directory;
  const auto refusal = [](const std::filesystem::path& path) -> std::string {
    return RefusalOf<LoadError>([&] { const SafetensorsFile file(path); });
  };
  const std::filesystem::path missing = directory.path() / "missing";
  EXPECT_THAT(refusal(missing), AllOf(HasSubstr(missing.string()), HasSubstr("cannot be read")));
  EXPECT_THAT(refusal(directory.path()), HasSubstr("regular file"));
  WriteFile(directory.path() / "empty", "");
  EXPECT_THAT(refusal(directory.path() / "empty"), HasSubstr("empty"));
  WriteFile(directory.path() / "short", "1234567");
  EXPECT_THAT(refusal(directory.path() / "short"), HasSubstr("too short"));
}

TEST(SafetensorsTest, FailedWriteLeavesNothing) {
  const TempDir directory;
  EXPECT_THROW(WriteSafetensors(directory.path() / "no" / "such", {}), std::runtime_error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 0);
}

TEST(SafetensorsTest, SaysWhyItCannotWrite) {
  const TempDir directory;
  std::filesystem::create_directories(directory.path() / "file" / "kept");
  try {
    WriteSafetensors(directory.path() / "file", {});
    ADD_FAILURE() << "written";
  } catch (const std::runtime_error& e) {
    EXPECT_EQ(e.what(),
              (directory.path() / "file").string() + ": cannot be written: Is a directory");
  }
}

// A second look at a length or a header that was checked could find another.
TEST(SafetensorsTest, ReadsEachByteOfTheHeaderOnce) {
  const std::string file = File(kGood, 28);
  std::vector<int> times(file.size());
  const auto read = [&](uint64_t offset, std::span<std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) ++times.at(offset + i);
    std::memcpy(bytes.data(), file.data() + offset, bytes.size());
  };
  const SafetensorsHeader header = ReadSafetensorsHeader(file.size(), read, "f");
  EXPECT_EQ(header.data_begin, file.size() - 28);
  for (size_t i = 0; i < file.size(); ++i) EXPECT_EQ(times[i], i < header.data_begin ? 1 : 0) << i;
}

// With a mapped file this would be SIGBUS.
TEST(SafetensorsTest, AFileThatShrinksWhileItLoadsIsAnError) {
  const TempDir directory;
  const std::filesystem::path path = directory.path() / "t.safetensors";
  const std::string data(1 << 20, 'x');
  WriteSafetensors(path, {{"t", "U8", {1 << 20}, Bytes(data)}});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 4096);
  std::vector<std::byte> bytes(file.Find("t")->bytes);
  EXPECT_THROW(file.Read("t", bytes), LoadError);
}

TEST(SafetensorsTest, IsASourceOfTensors) {
  const TempDir directory;
  const std::string first = "0123456789ab";
  WriteSafetensors(directory.path() / kWeightsFile,
                   {{"b", "F32", {3}, Bytes(first)}, {"a", "U8", {0}, {}}});
  const std::unique_ptr<const TensorSource> tensors = OpenTensors(directory.path());
  EXPECT_EQ(tensors->name(), (directory.path() / kWeightsFile).string());
  EXPECT_THAT(tensors->TensorNames(), testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(tensors->Find("c"), nullptr);
  ASSERT_NE(tensors->Find("b"), nullptr);
  EXPECT_EQ(tensors->Find("b")->dtype, "F32");
  EXPECT_EQ(tensors->Find("b")->bytes, 12u);
  std::vector<std::byte> bytes(11);
  EXPECT_THROW(tensors->Read("b", bytes), std::out_of_range);
}

// Each took minutes when the time grew as the square of the length.
TEST(SafetensorsTest, HeadersLoadInTimeThatGrowsAsTheirLength) {
  std::string values, tensors;
  for (int i = 0; i < 1'000'000; ++i) values += "{},";
  for (int i = 0; i < 100'000; ++i) {
    tensors += "\"t" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  EXPECT_THAT(Refusal(File("{\"__metadata__\":[" + values + "0]}", 0)), "accepted");
  EXPECT_THAT(Refusal(File("{" + tensors + "\"__metadata__\":{}}", 0)), "accepted");
}

TEST(SafetensorsTest, NamesAndValuesInMessagesAreShortAndPrintable) {
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "\\u001b[2J\\n";
  for (const std::string& header :
       {"{\"" + name + "\":7}",
        Tensor("\"dtype\":\"" + name + R"(","shape":[1],"data_offsets":[0,4])"),
        Tensor(R"("dtype":"F32","shape":[")" + name + R"("],"data_offsets":[0,4])"),
        Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[")" + name + R"("])"),
        "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})"}) {
    const std::string refusal = Refusal(File(header, 4));
    EXPECT_THAT(refusal, HasSubstr("dir/model.safetensors: "));
    EXPECT_LT(refusal.size(), 1000);
    EXPECT_EQ(refusal.find_first_of("\x1b\n"), refusal.npos);
  }
}

}  // namespace
}  // namespace triptych::checkpoint::safetensors_test
