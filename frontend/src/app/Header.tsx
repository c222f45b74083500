/** The name, and the two switches: language and theme. */

import { Icon } from "../components/Icon";
import { Segments } from "../components/Segments";
import { Star } from "../components/Star";
import { LOCALES, type Locale } from "../i18n/dictionary";
import { useI18n } from "../i18n/I18n";
import { LIST_ID } from "../jobs/GenerationList";
import { changePreferences, type Theme, usePreferences } from "../preferences/preferences";
import styles from "./Header.module.css";

const THEMES: readonly Theme[] = ["auto", "light", "dark"];

export function Header() {
  const { t, locale } = useI18n();
  const { theme } = usePreferences();
  return (
    <header className={styles.header}>
      <a className={styles.skip} href={`#${LIST_ID}`}>
        {t.skipToList}
      </a>
      <div className={styles.name}>
        <Star className={styles.mark} />
        <h1 className={styles.title}>
          <span lang="en" className={styles.latin}>
            Kargah
          </span>{" "}
          <span lang="fa" className={styles.persian}>
            کارگاه
          </span>
        </h1>
        <p className={styles.tagline}>{t.tagline}</p>
      </div>
      <div className={styles.switches}>
        <Segments
          legend={t.language}
          isLegendHidden
          options={(Object.keys(LOCALES) as Locale[]).map((value) => ({
            value,
            label: LOCALES[value].words.languageName,
            content: <LanguageName locale={value} />,
          }))}
          value={locale}
          onChange={(chosen) => changePreferences({ locale: chosen })}
        />
        <Segments
          legend={t.theme.label}
          isLegendHidden
          options={THEMES.map((value) => ({ value, label: t.theme[value], content: <Icon name={value} /> }))}
          value={theme}
          onChange={(chosen) => changePreferences({ theme: chosen })}
        />
      </div>
    </header>
  );
}

/** Each language in its own script; on a narrow screen in two letters. */
function LanguageName({ locale }: { readonly locale: Locale }) {
  const { languageName, languageShort } = LOCALES[locale].words;
  return (
    <span lang={locale}>
      <span className={styles.long}>{languageName}</span>
      <span className={styles.short}>{languageShort}</span>
    </span>
  );
}
