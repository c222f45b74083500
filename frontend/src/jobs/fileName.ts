/** What a downloaded picture is called: its prompt, short and safe in any file system, and its seed. */

import type { Picture } from "../api/types";

const MAX_CHARS = 60;

export function fileName(prompt: string, { seed, content_type }: Picture): string {
  const words = prompt
    .normalize("NFC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\u200c]+/gu, "-")
    .slice(0, MAX_CHARS)
    .replace(/^-+|-+$/g, "");
  const extension = content_type.split("/")[1] ?? "png";
  return `${words || "picture"}-${seed}.${extension}`;
}
