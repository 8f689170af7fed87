// Drag and drop onto the upload form. Without this script the form works as a plain file picker.

const form = document.querySelector("[data-upload]");
const input = form.querySelector("input[type=file]");
const status = form.querySelector("[data-status]");
const button = form.querySelector("button");

button.hidden = true;
input.addEventListener("change", take);
for (const name of ["dragenter", "dragover"]) {
  form.addEventListener(name, (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
}
for (const name of ["dragleave", "drop"]) {
  form.addEventListener(name, (event) => {
    event.preventDefault();
    if (name === "drop" || !form.contains(event.relatedTarget)) form.classList.remove("over");
  });
}
form.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  input.files = event.dataTransfer.files;
  take();
});
take(); // What was chosen before this script came.

function take() {
  const file = input.files[0];
  if (!file) return;
  if (file.size > Number(form.dataset.maxBytes)) {
    status.textContent = `“${file.name}” is larger than an upload may be. Split it and upload the parts.`;
    return;
  }
  status.textContent = `Uploading and checking “${file.name}” …`;
  form.requestSubmit();
}
