/** Where the picture is, or will be: star, preview, finished pictures, or the mark of an ending without one. */

import { useState } from "react";
import type { Input, Picture } from "../api/types";
import { Icon } from "../components/Icon";
import { Star } from "../components/Star";
import { useI18n } from "../i18n/I18n";
import { isUnfinished } from "./describe";
import type { Fields } from "./reducer";
import styles from "./Stage.module.css";

interface StageProps {
  readonly now: Fields;
  readonly input: Input;
  readonly onOpen: (index: number) => void;
}

export function Stage({ now, input, onOpen }: StageProps) {
  return (
    <div className={styles.stage} style={{ aspectRatio: `${input.width} / ${input.height}` }} data-status={now.status}>
      <Content now={now} input={input} onOpen={onOpen} />
    </div>
  );
}

function Content({ now, input, onOpen }: StageProps) {
  const { t } = useI18n();
  if (now.status === "completed") return <Pictures pictures={now.images} prompt={input.prompt} onOpen={onOpen} />;
  if (now.preview !== null) {
    return (
      <KeptImage
        key={now.preview.url}
        className={styles.preview}
        src={now.preview.url}
        alt={t.picture.previewAlt(input.prompt)}
      />
    );
  }
  if (isUnfinished(now)) return <Star className={now.status === "active" ? styles.turning : styles.resting} />;
  return (
    <span className={styles.ended}>
      <Icon name={now.status === "failed" ? "warning" : "cancel"} />
    </span>
  );
}

function Pictures({
  pictures,
  prompt,
  onOpen,
}: {
  readonly pictures: readonly Picture[];
  readonly prompt: string;
  readonly onOpen: (index: number) => void;
}) {
  const { t, format } = useI18n();
  return (
    <div className={styles.pictures} data-count={pictures.length}>
      {pictures.map((picture, position) => (
        <button
          key={picture.url}
          type="button"
          className={styles.open}
          aria-label={t.actions.open(format.number(position + 1), prompt)}
          onClick={() => onOpen(position)}
        >
          <KeptImage src={picture.url} alt={prompt} width={picture.width} height={picture.height} />
        </button>
      ))}
    </div>
  );
}

interface KeptImageProps {
  readonly src: string;
  readonly alt: string;
  readonly className?: string | undefined;
  readonly width?: number;
  readonly height?: number;
}

/** A picture that may be gone: previews live minutes, finished pictures as long as their job. */
export function KeptImage({ src, alt, className, width, height }: KeptImageProps) {
  const { t } = useI18n();
  const [isGone, setGone] = useState(false);
  if (isGone) return <span className={styles.gone}>{t.picture.gone}</span>;
  return (
    <img
      className={className}
      src={src}
      alt={alt}
      width={width}
      height={height}
      decoding="async"
      onError={() => setGone(true)}
    />
  );
}
