/** A finished picture, large, with its parameters; a modal dialog that Escape closes. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { Icon } from "../components/Icon";
import { useI18n } from "../i18n/I18n";
import { Parameters } from "./Details";
import type { KnownJob } from "./SessionContext";
import { KeptImage } from "./Stage";
import styles from "./Viewer.module.css";

interface ViewerProps {
  readonly job: KnownJob;
  readonly start: number;
  readonly onClose: () => void;
}

export function Viewer({ job, start, onClose }: ViewerProps) {
  const { t, format, direction } = useI18n();
  const dialog = useRef<HTMLDialogElement>(null);
  const [position, setPosition] = useState(start);
  const { prompt } = job.now.input;
  const pictures = job.now.images;
  const picture = pictures[position];

  useEffect(() => dialog.current?.showModal(), []);

  function turn(by: number) {
    setPosition((position + by + pictures.length) % pictures.length);
  }

  function onKeyDown(event: KeyboardEvent) {
    const forward = direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const backward = direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    if (event.key === forward) turn(1);
    if (event.key === backward) turn(-1);
  }

  return (
    <dialog
      ref={dialog}
      className={styles.viewer}
      aria-label={prompt}
      onClose={onClose}
      onKeyDown={onKeyDown}
      onClick={(event) => event.target === dialog.current && dialog.current.close()}
    >
      <div className={styles.frame}>
        <div className={styles.picture}>
          {picture !== undefined && <KeptImage key={picture.url} src={picture.url} alt={prompt} />}
        </div>
        <div className={styles.side}>
          <button
            type="button"
            className={`button icon-only ${styles.close}`}
            aria-label={t.actions.close}
            onClick={() => dialog.current?.close()}
          >
            <Icon name="cancel" />
          </button>
          <p className={styles.prompt} dir="auto">
            {prompt}
          </p>
          <Parameters job={job} />
          <div className={styles.actions}>
            {picture !== undefined && (
              <a className="button primary" href={picture.url} download>
                <Icon name="download" />
                {t.actions.download}
              </a>
            )}
            {pictures.length > 1 && (
              <>
                <button
                  type="button"
                  className={`button icon-only ${styles.previous}`}
                  aria-label={t.actions.previous}
                  onClick={() => turn(-1)}
                >
                  <Icon name="chevron" />
                </button>
                <span className={styles.count} dir="ltr">
                  {format.number(position + 1)} / {format.number(pictures.length)}
                </span>
                <button
                  type="button"
                  className={`button icon-only ${styles.next}`}
                  aria-label={t.actions.next}
                  onClick={() => turn(1)}
                >
                  <Icon name="chevron" />
                </button>
              </>
            )}
          </div>
        </div>
      </div>
    </dialog>
  );
}
