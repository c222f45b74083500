/** The khatam, two squares in one circle: Kargah's mark, and what stands where a picture will be. */

export function Star({ className }: { readonly className?: string | undefined }) {
  return (
    <svg className={className} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <g fill="none" stroke="currentColor" strokeWidth="1.25" strokeLinejoin="round">
        <rect x="7" y="7" width="18" height="18" />
        <rect x="7" y="7" width="18" height="18" transform="rotate(45 16 16)" />
        <circle cx="16" cy="16" r="4.5" />
      </g>
    </svg>
  );
}
