// What the theme leaves out for keyboards and screen readers: what scrolls can be focused, what is named has a level.
addEventListener("DOMContentLoaded", () => {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "The manual");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.setAttribute("aria-level", "2");
  for (const region of document.querySelectorAll("pre, .table-wrapper")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
});
