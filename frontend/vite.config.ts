import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const API = "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../orchestrator/static",
    emptyOutDir: true,
    // The policy is img-src 'self' and script-src 'self': nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: ["chrome123", "firefox128", "safari18"],
  },
  server: { port: 5173, proxy: { "/v1": API } },
  test: {
    restoreMocks: true,
    testTimeout: 30_000,
    maxWorkers: 1,
    projects: [
      { extends: true, test: { name: "logic", include: ["src/**/*.test.ts"] } },
      {
        extends: true,
        test: {
          name: "page",
          include: ["src/**/*.test.tsx"],
          environment: "jsdom",
          setupFiles: "src/testing/setup.ts",
        },
      },
    ],
  },
});
