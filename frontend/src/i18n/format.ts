/** Numbers, durations and instants in the digits and words of a language. */

export interface Format {
  /** `1,234.5` / `۱٬۲۳۴٫۵` */
  number(value: number): string;
  /** Without grouping, as it would be typed into a field: `1234.5` / `۱۲۳۴٫۵` */
  plain(value: number): string;
  percent(fraction: number): string;
  /** `128 × 128` in the order of reading. */
  size(width: number, height: number): string;
  /** `0.4 s`, `12 s`, `3 min`: as exact as one needs while waiting. */
  duration(ms: number): string;
  /** `5 minutes ago`, `in 2 hours` */
  relative(at: number, now: number): string;
  instant(at: number): string;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function createFormat(tag: string): Format {
  const number = new Intl.NumberFormat(tag, { maximumFractionDigits: 2 });
  const plain = new Intl.NumberFormat(tag, { maximumFractionDigits: 4, useGrouping: false });
  const percent = new Intl.NumberFormat(tag, { style: "percent" });
  const unit = (name: string, digits: number) =>
    new Intl.NumberFormat(tag, {
      style: "unit",
      unit: name,
      unitDisplay: "short",
      maximumFractionDigits: digits,
    });
  const [tenths, seconds, minutes] = [unit("second", 1), unit("second", 0), unit("minute", 0)];
  const relative = new Intl.RelativeTimeFormat(tag, { numeric: "auto" });
  const instant = new Intl.DateTimeFormat(tag, { dateStyle: "medium", timeStyle: "short" });

  return {
    number: (value) => number.format(value),
    plain: (value) => plain.format(value),
    percent: (fraction) => percent.format(fraction),
    size: (width, height) => `${plain.format(width)} × ${plain.format(height)}`,
    duration(ms) {
      if (ms < 10_000) return tenths.format(ms / 1000);
      if (ms < 90_000) return seconds.format(Math.round(ms / 1000));
      return minutes.format(Math.round(ms / MINUTE));
    },
    relative(at, now) {
      const past = at - now;
      const size = Math.abs(past);
      if (size < MINUTE) return relative.format(0, "second");
      if (size < HOUR) return relative.format(Math.round(past / MINUTE), "minute");
      if (size < DAY) return relative.format(Math.round(past / HOUR), "hour");
      return relative.format(Math.round(past / DAY), "day");
    },
    instant: (at) => instant.format(at),
  };
}

const DIGITS = /[۰-۹٠-٩]/g;

/** Read a typed number, in Latin, Persian or Arabic digits. Empty = null; not a number = NaN. */
export function parseNumber(text: string): number | null {
  const latin = text
    .trim()
    .replace(DIGITS, (digit) => String(digit.charCodeAt(0) & 0xf))
    .replace("٫", ".")
    .replace(/[٬,\u200e\u200f]/g, "");
  return latin === "" ? null : Number(latin);
}
