// The picture with what lies over it: heat map, numbered marks, crop window.

const $ = (id) => document.getElementById(id);
const percent = (part, whole) => `${(100 * part) / whole}%`;

export function setSize({ width, height }) {
  $("frame").style.aspectRatio = `${width} / ${height}`;
  $("view").style.setProperty("--ratio", width / height);
}

// Resolves to the size that the browser sees, or null when it cannot show the file.
export async function showPhoto(url) {
  const photo = $("photo");
  photo.src = url;
  try {
    await photo.decode();
    return { width: photo.naturalWidth, height: photo.naturalHeight };
  } catch {
    return null;
  }
}

export async function showHeat(url) {
  $("heat").src = url;
  await $("heat").decode();
}

export function setOpacity(share) {
  $("heat").style.opacity = share;
}

export function showMarks(peaks, { width, height }) {
  $("marks").replaceChildren(
    ...peaks.map((peak, index) => {
      const mark = document.createElement("li");
      mark.textContent = index + 1;
      mark.style.setProperty("--x", percent(peak.x, width));
      mark.style.setProperty("--y", percent(peak.y, height));
      return mark;
    }),
  );
}

export function light(index) {
  [...$("marks").children].forEach((mark, i) => mark.classList.toggle("lit", i === index));
}

export function showWindow(box, { width, height }) {
  const shown = $("window");
  shown.hidden = box === null;
  if (box === null) return;
  const [left, top, right, bottom] = box;
  shown.style.left = percent(left, width);
  shown.style.top = percent(top, height);
  shown.style.width = percent(right - left, width);
  shown.style.height = percent(bottom - top, height);
}
