#include "engine/base/table.h"

#include <gtest/gtest.h>

namespace triptych::table_test {
namespace {

TEST(TableTest, AlignsColumnsAndStandsTitlesOnTheRule) {
  Table table({{"name", Table::Align::kLeft}, {"bytes/\nposition"}});
  table.AddRow({"a", "1"});
  table.AddRow({"longer", "1,024"});
  EXPECT_EQ(table.ToString(),
            "          bytes/\n"
            "name    position\n"
            "──────  ────────\n"
            "a              1\n"
            "longer     1,024\n");
}

TEST(TableTest, CountsCharactersNotBytes) {
  Table table({{"é", Table::Align::kLeft}, {"x"}});
  table.AddRow({"日本", "1"});
  table.AddRow({"ab", "2"});
  EXPECT_EQ(table.ToString(),
            "é   x\n"
            "──  ─\n"
            "日本  1\n"
            "ab  2\n");
}

TEST(TableTest, WithoutRowsHasTitlesOnly) {
  EXPECT_EQ(Table({{"a"}, {"bc"}}).ToString(), "a  bc\n─  ──\n");
}

TEST(TableTest, SidewaysPutsRowsNextToEachOther) {
  Table table({{"model"}, {"bytes per position"}, {"kind"}});
  table.AddRow({"first", "2,048", "MHA"});
  table.AddRow({"second", "256", "MLA"});
  EXPECT_EQ(table.Sideways(100),
            "                    first  second\n"
            "──────────────────  ─────  ──────\n"
            "bytes per position  2,048     256\n"
            "kind                  MHA     MLA\n");
}

TEST(TableTest, SidewaysGoesOnBelowWhatDoesNotFit) {
  Table table({{"model"}, {"kind"}});
  table.AddRow({"one", "MHA"});
  table.AddRow({"two", "GQA"});
  table.AddRow({"three", "MLA"});
  EXPECT_EQ(table.Sideways(14),
            "      one  two\n"
            "────  ───  ───\n"
            "kind  MHA  GQA\n"
            "\n"
            "      three\n"
            "────  ─────\n"
            "kind    MLA\n");
  // No row is left out, however narrow the space.
  EXPECT_EQ(table.Sideways(1),
            "      one\n────  ───\nkind  MHA\n\n"
            "      two\n────  ───\nkind  GQA\n\n"
            "      three\n────  ─────\nkind    MLA\n");
}

}  // namespace
}  // namespace triptych::table_test
