import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LOCALES } from "./dictionary";
import { createFormat, parseNumber } from "./format";

const [en, fa] = [createFormat("en"), createFormat("fa-IR")];

describe("formats", () => {
  test("Persian numbers have Persian digits", () => {
    expect(fa.number(1234.5)).toBe("۱٬۲۳۴٫۵");
    expect(fa.plain(1719411578)).toBe("۱۷۱۹۴۱۱۵۷۸");
    expect(fa.size(128, 64)).toBe("۱۲۸ × ۶۴");
  });

  test.each([
    [400, "0.4 sec"],
    [12_400, "12 sec"],
    [89_000, "89 sec"],
    [190_000, "3 min"],
  ])("%d ms is about %s", (ms, text) => {
    expect(en.duration(ms)).toBe(text);
  });

  test("ages are told in the greatest fitting unit", () => {
    const now = 1_764_000_000_000;
    expect(en.relative(now - 10_000, now)).toBe("now");
    expect(en.relative(now - 5 * 60_000, now)).toBe("5 minutes ago");
    expect(en.relative(now - 26 * 3_600_000, now)).toBe("yesterday");
    expect(fa.relative(now - 5 * 60_000, now)).toBe("۵ دقیقه پیش");
  });
});

describe("typed numbers", () => {
  test.each([
    ["128", 128],
    ["۱۲۸", 128],
    ["٢٫٥", 2.5],
    ["1,024", 1024],
    [" ", null],
  ])("%j is %j", (text, value) => {
    expect(parseNumber(text)).toBe(value);
  });

  test("words are no number", () => {
    expect(parseNumber("many")).toBeNaN();
  });

  test("whatever a format writes is read back", () => {
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 53 - 1 }), fc.constantFrom(en, fa), (value, format) => {
        expect(parseNumber(format.plain(value))).toBe(value);
        expect(parseNumber(format.number(value))).toBe(value);
      }),
    );
  });
});

describe("the dictionaries", () => {
  test("have no empty word and no word left in English", () => {
    const words = (tree: object): [string, string][] =>
      Object.entries(tree).flatMap(([key, value]) => {
        if (typeof value === "function") return [[key, value("1", "2") as string]];
        return typeof value === "string" ? [[key, value]] : words(value as object).map(([k, v]) => [`${key}.${k}`, v]);
      });
    const same = new Set(["compose.submitHint"]);
    const english = new Map(words(LOCALES.en.words));
    for (const [key, value] of words(LOCALES.fa.words)) {
      expect(value, key).not.toBe("");
      if (!same.has(key)) expect(value, key).not.toBe(english.get(key));
    }
  });
});
