// Runs before the first paint: the remembered language and theme, so that nothing flashes. See src/preferences.
(() => {
  const root = document.documentElement;
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem("kargah.preferences") || "{}");
  } catch {
    // Storage is forbidden or its text is foreign: the defaults do.
  }
  const locale = kept.locale || (/^fa\b/.test(navigator.language) ? "fa" : "en");
  if (locale === "fa") {
    root.lang = "fa";
    root.dir = "rtl";
    root.dataset.pending = ""; // hidden until the page speaks Persian: it was prerendered in English
  }
  if (kept.theme === "light" || kept.theme === "dark") root.dataset.theme = kept.theme;
})();
