/** Small line drawings, 20 × 20, in the colour of the text beside them. They say nothing: labels do. */

const PATHS = {
  auto: "M10 3.5a6.5 6.5 0 1 0 0 13zM10 3.5a6.5 6.5 0 0 1 0 13",
  light:
    "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M15.7 4.3l-1.1 1.1M5.4 14.6l-1.1 1.1",
  dark: "M16.2 12.2A6.8 6.8 0 0 1 7.8 3.8a6.8 6.8 0 1 0 8.4 8.4z",
  download: "M10 3v9.5M6.2 9 10 12.8 13.8 9M4 16.5h12",
  remove: "M4 5.5h12M8 5.5V4h4v1.5M5.5 5.5l.7 11h7.6l.7-11M8.4 8.5v5M11.6 8.5v5",
  reuse: "M4 16l.9-3.4L13 4.5l2.5 2.5-8.1 8.1zM11.4 6.1l2.5 2.5",
  retry: "M15.8 7.5A6.3 6.3 0 1 0 16.3 11M16.3 3.8v3.9h-3.9",
  cancel: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  chevron: "M7.5 4.5 13 10l-5.5 5.5",
  warning: "M10 3.2 18 16.8H2zM10 8v4M10 14.3v.2",
  send: "M10 16.5v-13M5 8.5l5-5 5 5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill={name === "auto" ? "currentColor" : "none"}
        stroke="currentColor"
        strokeWidth="1.6"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
