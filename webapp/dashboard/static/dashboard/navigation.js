// On a phone the row of pages scrolls: bring the present one into sight.

document.querySelector(".nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
